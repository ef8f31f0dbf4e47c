"""Running statistics: measured always, held when asked, given back afterwards."""

import copy
import math
import pickle
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.core.norms.running_stats import shift, snapshot
from nscl.core.report.statistics import LARGE_SHIFT
from nscl.errors import StatisticsWarning
from tests.core.memories import hooks

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")

TRACKING: dict[str, Any] = {
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), (6, 4)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), (6, 4, 3, 3)),
    "cumulative": (lambda: nn.BatchNorm2d(4, momentum=None), (6, 4, 3, 3)),
    "not affine": (lambda: nn.BatchNorm1d(4, affine=False), (6, 4)),
    "InstanceNorm": (lambda: nn.InstanceNorm1d(4, track_running_stats=True), (6, 4, 3)),
}


class Network(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm, self.head = norm, nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return self.head(x.flatten(2).mean(2) if x.ndim > 2 else x)


def statistics(model: Network) -> tuple[Tensor, Tensor]:
    return model.norm.running_mean.clone(), model.norm.running_var.clone()


def unchanged(model: Network, before: tuple[Tensor, Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(before, statistics(model), strict=True))


@pytest.mark.parametrize("tracks", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_an_excluded_layer_is_neither_held_nor_measured(tracks: bool, affine: bool) -> None:
    norm = nn.BatchNorm1d(4, affine=affine, track_running_stats=tracks)
    model = Network(norm).train()
    memory = nscl.Memory(model, rule=nscl.Ratio(), statistics="freeze", exclude=["norm"])
    with memory.protect(torch.optim.SGD(model.parameters(), 0.0)):
        assert memory.remember([torch.randn(6, 4)]).statistics == ()
        before = copy.deepcopy(norm.running_mean)
        out = model(7 * torch.randn(6, 4))
        assert out.isfinite().all()
        assert not tracks or not torch.equal(norm.running_mean, before)


@pytest.mark.parametrize(("make", "shape"), TRACKING.values(), ids=TRACKING.keys())
def test_held_from_the_first_remember_until_removed(make: Any, shape: tuple[int, ...]) -> None:
    model = Network(make()).train()
    memory = nscl.Memory(model, rule=nscl.Ratio(), statistics="freeze")
    before = hooks(model)
    protection = memory.protect(torch.optim.SGD(model.parameters(), 0.0))
    start = statistics(model)
    model(3 + 2 * torch.randn(shape))
    assert not unchanged(model, start)  # nothing is remembered yet
    memory.remember([torch.randn(shape)])
    held, x = statistics(model), 7 * torch.randn(shape)
    out = model(x)
    assert unchanged(model, held)
    assert model.training
    assert model.norm.training
    assert torch.allclose(out, model.eval()(x))  # normalised as the old data were
    assert memory.forgetting().statistics[0].shift == 0
    protection.remove()
    assert hooks(model) == before
    model.train()(x)
    assert not unchanged(model, held)


@pytest.mark.parametrize(("make", "shape"), TRACKING.values(), ids=TRACKING.keys())
def test_moving_as_in_the_paper_and_reported(make: Any, shape: tuple[int, ...]) -> None:
    model = Network(make()).train()
    memory = nscl.Memory.adam_nscl(model)
    memory.protect(torch.optim.SGD(model.parameters(), 0.0))
    model(torch.randn(shape))
    memory.remember([torch.randn(shape)])
    held = statistics(model)
    assert [s.shift for s in memory.report().statistics] == [0.0]
    model(5 + 3 * torch.randn(shape))
    assert not unchanged(model, held)
    mean, var = statistics(model)
    moved = ((mean - held[0]) ** 2 + (var.sqrt() - held[1].sqrt()) ** 2) / held[1]
    for found in (memory.report().statistics, memory.forgetting().statistics):
        assert found[0].name == "norm"
        assert found[0].shift == pytest.approx(float(moved.mean().sqrt()), rel=1e-5)
    assert "statistics of norm moved by" in str(memory.forgetting())
    assert "statistics of norm moved by" in str(memory.report())
    memory.remember([torch.randn(shape)])
    assert memory.forgetting().statistics[0].shift == 0


def moved_by(sigmas: float, mode: Any) -> tuple[nscl.Memory, torch.optim.Optimizer]:
    """A memory of standard normal inputs, and a training pass over inputs of another mean since."""
    torch.manual_seed(0)
    model = Network(nn.BatchNorm1d(4, momentum=None)).train()
    memory = nscl.Memory(model, rule=nscl.Ratio(), statistics=mode)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    memory.protect(optimizer)
    model(torch.randn(4000, 4))
    memory.remember([torch.randn(60, 4)])
    model.norm.momentum = 1.0
    model(sigmas + torch.randn(4000, 4))
    return memory, optimizer


def test_remember_warns_of_statistics_that_moved_far() -> None:
    memory, _optimizer = moved_by(1.3 * LARGE_SHIFT, "update")
    assert "statistics='freeze'" in str(memory.forgetting())
    assert any("running statistics of norm" in note for note in memory.report().notes)
    with pytest.warns(StatisticsWarning, match=r"of norm moved by .* statistics='freeze'"):
        report = memory.remember([torch.randn(60, 4)])
    assert "statistics" not in str(report)  # from now on these are the remembered ones


@pytest.mark.parametrize(("share", "mode"), [(0.7, "update"), (1.3, "freeze")])
def test_remember_is_silent_where_statistics_hardly_move_or_are_held(
    share: float, mode: str
) -> None:
    memory, _optimizer = moved_by(share * LARGE_SHIFT, mode)
    with warnings.catch_warnings():
        warnings.simplefilter("error", StatisticsWarning)
        memory.remember([torch.randn(60, 4)])


def test_a_layer_without_statistics_needs_no_holding() -> None:
    for norm in (
        nn.LayerNorm(4),
        nn.GroupNorm(2, 4),
        nn.RMSNorm(4),
        nn.InstanceNorm1d(4, affine=True),
    ):
        model = Network(norm).train()
        memory = nscl.Memory(model, rule=nscl.Ratio(), statistics="freeze")
        with memory.protect(torch.optim.SGD(model.parameters(), 0.0)):
            x = torch.randn(5, 4, 3) if isinstance(norm, nn.InstanceNorm1d) else torch.randn(5, 4)
            memory.remember([x])
            assert torch.equal(model(x), model.eval()(x))
            assert memory.forgetting().statistics == ()


def test_a_norm_that_never_ran_goes_on_moving() -> None:
    model = nn.ModuleDict({"one": nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))})
    model["two"] = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    memory = nscl.Memory(model, rule=nscl.Ratio(), statistics="freeze")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    memory.protect(optimizer)
    memory.remember([torch.randn(5, 3)], forward=lambda m, x: m["one"](x))
    before = snapshot({name: head[0] for name, head in model.items()})
    for head in model.values():
        head.train()(3 + torch.randn(5, 3))
    assert torch.equal(model["one"][0].running_mean, before["one"]["running_mean"])
    assert not torch.equal(model["two"][0].running_mean, before["two"]["running_mean"])


def test_modes_come_back_even_when_the_layer_raises() -> None:
    model, broken = Network(nn.BatchNorm1d(4)).train(), list[bool]()
    model.norm.register_forward_pre_hook(lambda *_: 1 / 0 if broken else None)
    memory = nscl.Memory(model, rule=nscl.Ratio(), statistics="freeze")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    memory.protect(optimizer)
    memory.remember([torch.randn(5, 4)])
    with pytest.raises(RuntimeError, match="running_mean should contain"):
        model(torch.randn(5, 3))
    assert model.norm.training
    broken.append(True)
    with pytest.raises(ZeroDivisionError):
        model(torch.randn(5, 4))
    assert model.norm.training
    broken.clear()
    held = statistics(model)
    model(torch.randn(5, 4))
    assert model.norm.training
    assert unchanged(model, held)


@pytest.mark.parametrize(
    ("how", "warm"),
    [
        ("whole", "never"),
        ("whole", "before protect"),
        *((how, "before remember") for how in ("whole", "part", "in place")),
    ],
)
def test_compiled_models_hold_their_statistics_too(how: str, warm: str) -> None:
    model = Network(nn.BatchNorm1d(4)).train()
    run: nn.Module = model
    if how == "whole":
        run = torch.compile(model, backend="eager")
    elif how == "part":
        model.norm = torch.compile(model.norm, backend="eager")
    else:
        model.compile(backend="eager")
    if warm == "before protect":
        run(torch.randn(5, 4))
    memory = nscl.Memory(run, rule=nscl.Ratio(), statistics="freeze")
    protection = memory.protect(optimizer := torch.optim.SGD(model.parameters(), 0.1))
    assert optimizer is not None
    if warm == "before remember":
        run(torch.randn(5, 4))
    memory.remember([torch.randn(5, 4)])
    held = statistics(model)
    run(3 + torch.randn(5, 4))
    assert unchanged(model, held)
    protection.remove()
    run(3 + torch.randn(5, 4))
    assert not unchanged(model, held)


def pickled(model: nn.Module) -> Any:
    return pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickled])
def test_copies_of_a_held_model_are_free(duplicate: Any) -> None:
    model = Network(nn.BatchNorm1d(4)).train()
    memory = nscl.Memory(model, rule=nscl.Ratio(), statistics="freeze")
    protection = memory.protect(optimizer := torch.optim.SGD(model.parameters(), 0.1))
    assert optimizer is not None
    memory.remember([torch.randn(5, 4)])
    copied, held = duplicate(model), statistics(model)
    for network, is_held in ((copied, False), (model, True)):
        network(3 + torch.randn(5, 4))
        assert unchanged(network, held) == is_held
        assert network.norm.training
    protection.remove()
    copied(torch.randn(5, 4))
    again = nscl.Memory(copied, rule=nscl.Ratio(), statistics="freeze")
    again.protect(other := torch.optim.SGD(copied.parameters(), 0.1))
    assert other is not None
    again.remember([torch.randn(5, 4)])
    held = statistics(copied)
    copied(3 + torch.randn(5, 4))
    assert unchanged(copied, held)


def test_the_distance_by_hand() -> None:
    def of(mean: list[float], var: list[float]) -> dict[str, Tensor]:
        return {"running_mean": torch.tensor(mean), "running_var": torch.tensor(var)}

    assert shift(of([0, 0], [1, 4]), of([0, 0], [1, 4])) == 0
    assert shift(of([0], [4]), of([2], [4])) == pytest.approx(1)  # one σ
    assert shift(of([0], [4]), of([0], [16])) == pytest.approx(1)  # σ from 2 to 4
    assert shift(of([0, 0], [1, 1]), of([3, 0], [1, 1])) == pytest.approx(math.sqrt(4.5))
    assert math.isfinite(shift(of([0, 0], [0, 1]), of([1, 0], [1, 1])))  # a dead channel woke up
    assert math.isfinite(shift(of([0], [0]), of([0], [0])))
    assert shift({}, of([0], [1])) == 0
