"""A rank that is too large, another memory's, or too small for the data is reported."""

import copy

import pytest
import torch
from torch import nn

import nscl
from nscl.core.checks.sketches import rank_in_use, widths
from nscl.core.model.inventory import take_inventory
from nscl.errors import ModelMismatchError
from tests.core.promises.test_wide_layers import linear, steps

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


def test_a_hard_rule_frees_nothing_where_something_was_lost_and_notes_it() -> None:
    model, memory, optimizer = linear(rule=nscl.Energy(0.2), rank=8)
    report = memory.remember([torch.randn(200, 40, dtype=torch.float64)])
    assert report.layers[0].free == 0
    assert any("rank=8: 0" in note and "soft rule" in note for note in report.notes)
    before = copy.deepcopy(model)
    steps(model, optimizer, torch.randn(9, 40, dtype=torch.float64))
    assert torch.equal(model[0].weight, before[0].weight)


def test_ranks_that_differ_do_not_add_up() -> None:
    model, memory, _ = linear(rank=8)
    memory.remember([torch.randn(50, 40, dtype=torch.float64)])
    for rank in (None, 9):
        other = nscl.Memory(model, rank=rank)
        message = f"rank=8, but this memory has rank={rank}"
        with pytest.raises(ModelMismatchError, match=message):
            other.merge(memory)
        with pytest.raises(ModelMismatchError, match=message):
            other.load_state_dict(memory.state_dict())
        assert other.tasks == 0


def test_a_rank_that_does_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rank=20 does nothing: .* the widest is 'model' with 9"):
        nscl.Memory(nn.Linear(8, 2), rank=20)
    with pytest.raises(ValueError, match="does nothing"):  # tokens are counted one by one
        nscl.Memory(nn.Embedding(500, 4), rank=20)
    nscl.Memory(nn.Linear(8, 32), rank=20)  # its outputs are wide
    with pytest.raises(ValueError, match="does nothing"):
        nscl.Memory(nn.Linear(8, 32), rank=20, rule=nscl.Ratio())


def test_the_width_of_a_layer_is_that_of_its_wider_side_per_group() -> None:
    model = nn.Sequential(
        nn.Embedding(500, 4), nn.Conv1d(4, 6, 3, groups=2), nn.Linear(7, 90, bias=False)
    )
    found = take_inventory(model)
    assert widths(found, outputs=False) == {"0": 0, "1": 2 * 3 + 1, "2": 7}
    assert widths(found, outputs=True) == {"0": 4, "1": 7, "2": 90}
    assert rank_in_use(found, 8, outputs=True) == 8
    assert rank_in_use(found, 8, outputs=False) is None  # a file may have had wider layers
