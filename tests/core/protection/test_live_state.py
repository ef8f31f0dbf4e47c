"""What a memory and its protections share: one state, and a count of how often it changed."""

import pytest
from torch import nn

from nscl.core.protection.live_state import LiveState
from nscl.core.state import State
from nscl.errors import UnsupportedError


def live(model: nn.Module, *, allow: bool = False) -> LiveState:
    return LiveState(model, exclude=(), allow_unsupported=allow)


def test_every_switch_is_a_new_revision_even_of_the_same_state() -> None:
    found, state = live(nn.Linear(2, 2)), State()
    for revision in (1, 2):
        found.switch(state)
        assert (found.state is state, found.revision) == (True, revision)


def test_a_restart_counts_steps_and_narrowed_blocks_afresh() -> None:
    found = live(nn.Linear(2, 2))
    found.steps, found.narrowed = 5, {"model"}
    found.restart()
    assert (found.steps, found.narrowed) == (0, set())
    found.restart(steps=3)
    assert found.steps == 3


def test_the_inventory_is_that_of_the_model_now() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    found = live(model)
    model.append(nn.Linear(2, 3))
    assert list(found.inventory().blocks) == ["0", "1"]
    assert list(found.parameters()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    found.exclude = ("1",)
    assert list(found.inventory().blocks) == ["0"]


def test_shapes_are_enough_for_a_plan_and_unknown_layers_only_where_they_are_allowed() -> None:
    planned = live(nn.Linear(2, 2, device="meta"))
    assert list(planned.inventory(without_values=True).blocks) == ["model"]
    with pytest.raises(UnsupportedError, match="on the meta device"):
        planned.inventory()
    model = nn.ModuleList([nn.Linear(2, 2), nn.GRU(2, 2)])
    with pytest.raises(UnsupportedError, match="no null space is known"):
        live(model).inventory()
    assert len(live(model, allow=True).inventory().unsupported) == 4
