"""One ``remember`` after another: the state is that of all data, and costs what one task costs."""

import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import nscl
from nscl.core.model.inventory import take_inventory
from nscl.core.protection import live_state
from tests.core.capture.test_data_pass import images, network
from tests.core.memories import covariance, move, remembered, rows_seen, same
from tests.core.model.tying import Untaught

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


def test_running_covariances_are_those_of_all_data_whatever_the_weights_were() -> None:
    """Three tasks, weights that move in between: rows are what each layer saw at its time."""
    model = network().double()
    memory, seen = nscl.Memory.adam_nscl(model), dict[str, list[Tensor]]()
    for task in range(3):
        x = images(3 + task).double()
        model.eval()
        for name in ("4", "6"):
            rows = model[: int(name)](x).detach()
            seen.setdefault(name, []).append(torch.cat([rows, torch.ones(len(rows), 1)], 1))
        memory.remember(x.split(2))
        move(model)
    assert memory.tasks == 3
    for name, rows in seen.items():
        every = torch.cat(rows)
        assert rows_seen(memory, name) == len(every) == 12
        expected = every.mT @ every / len(every)
        assert (covariance(memory, name) - expected).abs().max() < 1e-12


def test_how_data_are_cut_into_batches_does_not_matter() -> None:
    model, x = network().double(), images(12).double()
    whole, cut = (nscl.Memory(model, rule=nscl.Ratio(), norms="train") for _ in range(2))
    whole.remember([x])
    cut.remember(x.split(5))
    assert same(remembered(whole), remembered(cut), atol=1e-12)


def test_a_new_layer_is_free_and_then_remembered() -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    memory = nscl.Memory.adam_nscl(model)
    memory.remember([torch.randn(4, 3)])
    model.append(nn.Linear(3, 2))
    assert memory.report().layers[1].protected_by == "free until remembered"
    memory.remember([torch.randn(4, 3)])
    assert [line.protected_by for line in memory.report().layers] == ["null space"] * 2
    assert rows_seen(memory, "0") == 8
    assert rows_seen(memory, "1") == 4


def step_time(model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    model.eval()(images(2)).sum().backward()
    times = []
    for _ in range(15):
        start = time.perf_counter()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return min(times)


def operations(optimizer: torch.optim.Optimizer) -> list[tuple[str, int]]:
    """Every tensor operation of a step, with the numbers it yields."""
    seen: list[tuple[str, int]] = []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            found = func(*args, **(kwargs or {}))
            seen.append((str(func), found.numel() if isinstance(found, Tensor) else 0))
            return found

    with Counting():
        optimizer.step()
    return seen


@pytest.mark.parametrize("acts_on", ["step", "displacement"])
def test_many_tasks_cost_no_more_than_one(acts_on: Any) -> None:
    model = network()
    memory = nscl.Memory(model, rule=nscl.Energy(0.3), acts_on=acts_on)
    optimizer = torch.optim.Adam(model.parameters(), 0.0)
    memory.protect(optimizer)
    batches = images(16).split(8)
    memory.remember(batches)
    size, tensors = memory.nbytes, remembered(memory)["tensors"]
    shapes = {name: (t.shape, t.dtype) for name, t in tensors.items()}
    first, counted = step_time(model, optimizer), operations(optimizer)
    for _ in range(24):
        memory.remember(batches)
    assert memory.tasks == 25
    assert memory.nbytes == size
    after = remembered(memory)["tensors"]
    assert {name: (t.shape, t.dtype) for name, t in after.items()} == shapes
    assert step_time(model, optimizer) < 3 * first + 1e-3
    assert operations(optimizer) == counted  # on any machine, however busy
    assert torch.allclose(after["covariance/4"], 25 * tensors["covariance/4"])


def test_unused_directions_stay_free_however_often_the_same_is_remembered() -> None:
    """In float32 the same data are rounded the same way each time: errors do not average out."""
    model = nn.Sequential(nn.Linear(48, 4), nn.Linear(4, 2))
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-10))
    batches = (torch.rand(4, 48)[torch.arange(400) % 4]).split(100)
    for _ in range(20):
        free = memory.remember(batches).layers[0].free
        assert free == 49 - 4


@pytest.mark.parametrize("acts_on", ["step", "displacement"])
def test_torchs_default_device_is_not_the_memorys(acts_on: Any) -> None:
    """Meta for another device than the model's: what lands there has no numbers."""
    model = nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 3))
    optimizer, ids = torch.optim.SGD(model.parameters(), 0.1), torch.tensor([0, 1, 1])
    memory, plain = (
        nscl.Memory(model, rule=nscl.Ratio(), acts_on=acts_on),
        nscl.Memory.adam_nscl(model),
    )
    plain.remember([ids])
    torch.set_default_device("meta")
    try:
        memory.protect(optimizer)
        memory.remember([ids])
        model[2].bias.requires_grad_(False)  # a plan without it has a decomposition of its own
        model(ids).square().sum().backward()
        optimizer.step()
        assert memory.report().total.features == plain.report().total.features
        assert memory.forgetting().total.relative >= 0
    finally:
        torch.set_default_device(None)
    before, after = remembered(plain)["tensors"], remembered(memory)["tensors"]
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("statistics", ["update", "freeze"])
def test_remember_takes_the_inventory_once(
    statistics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    memory = nscl.Memory(model, statistics=statistics)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    memory.protect(optimizer)
    taken = []

    def counting(*args: Any, **kwargs: Any) -> Any:
        taken.append(args)
        return take_inventory(*args, **kwargs)

    monkeypatch.setattr(live_state, "take_inventory", counting)
    memory.remember([torch.randn(8, 4)])
    assert len(taken) == 1
    memory.report()
    assert len(taken) == 2


HELD: dict[str, tuple[dict[str, Any], set[str]]] = {
    "nothing": ({"norms": "ewc", "unsupported": "train"}, set()),
    "norms": ({"norms": "freeze", "unsupported": "train"}, {"1.weight", "1.bias", "3.gamma"}),
    "both": (
        {"norms": "freeze", "unsupported": "freeze"},
        {"1.weight", "1.bias", "2.weight", "3.gamma"},
    ),
}


class Gain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.gamma * x


@pytest.mark.parametrize("name", HELD)
def test_what_may_not_move_at_all_is_what_ran_and_was_asked_for(name: str) -> None:
    options, expected = HELD[name]
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), Untaught(), Gain(), nn.LayerNorm(4))
    memory = nscl.Memory(model, **options)
    memory.remember([torch.randn(5, 4)], forward=lambda model, x: model[:4](x))
    assert set(memory.state_dict()["metadata"]["held"]) == expected
    memory.remember([torch.randn(5, 4)], forward=lambda model, x: model[0](x))
    assert set(memory.state_dict()["metadata"]["held"]) == expected  # for good
