"""``Memory(rank=...)``: sketches in place of full covariances, through everything a memory does."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.core.covariance.sketched_covariance import SketchedCovariance
from nscl.core.projection.sketched.sketched_kronecker import SketchedKronecker

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")

SOFT = (nscl.Penalty(20.0), nscl.Budget(0.01), nscl.Ridge(1.0))


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(4, 6, 3, padding=1, groups=2),  # 18 features per group and a bias
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 16, 20),
        nn.Tanh(),
        nn.Linear(20, 3, bias=False),
    ).double()


def images(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 4, 4, 4, dtype=torch.float64, generator=generator)


def linear(
    outputs: int = 30, **options: Any
) -> tuple[nn.Sequential, nscl.Memory, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 24), nn.Linear(24, outputs)).double()
    memory = nscl.Memory(model, **options)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    memory.protect(optimizer)
    return model, memory, optimizer


def low_rank_rows(count: int, seed: int, directions: int = 5) -> Tensor:
    generator, always = (torch.Generator().manual_seed(s) for s in (seed, 7))
    basis = torch.randn(directions, 40, dtype=torch.float64, generator=always)
    return torch.randn(count, directions, dtype=torch.float64, generator=generator) @ basis


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, count: int = 6) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        (model(x) - 1.0).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("rule", [*SOFT, nscl.Tolerance(1e-10), nscl.Ratio(10.0)], ids=repr)
def test_data_of_rank_below_it_are_treated_as_by_the_full_memory(rule: Any) -> None:
    results = []
    # A soft rule lets the hidden space of the second task be another: 6 + 6 directions.
    for rank in (None, 14):
        model, memory, optimizer = linear(6, rule=rule, rank=rank)
        for task in (0, 1):
            memory.remember([low_rank_rows(30, task)])
            steps(model, optimizer, torch.randn(9, 40, dtype=torch.float64))
        memory.flush()
        results.append((model, memory))
    (full, full_memory), (small, small_memory) = results
    assert isinstance(small_memory._state.covariances["0"], SketchedCovariance)
    for before, after in zip(full.parameters(), small.parameters(), strict=True):
        assert torch.allclose(before, after, rtol=1e-6, atol=1e-8)
    ours, theirs = small_memory.report().layers, full_memory.report().layers
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.features, mine.protected_by) == (other.features, other.protected_by)
        assert mine.free == pytest.approx(other.free, rel=1e-6)
    drifts = [memory.forgetting().total.drift for memory in (small_memory, full_memory)]
    assert drifts[0] == pytest.approx(drifts[1], rel=1e-6, abs=1e-15)
    assert small_memory.nbytes["covariances"] < full_memory.nbytes["covariances"]


def test_old_outputs_stay_where_a_hard_rule_has_room() -> None:
    model, memory, optimizer = linear(rule=nscl.Tolerance(1e-10), rank=8)
    old = low_rank_rows(50, 0)
    memory.remember([old])
    before = model(old).detach()
    steps(model, optimizer, torch.randn(9, 40, dtype=torch.float64))
    assert (model(old) - before).abs().max() < 1e-9
    assert memory.report().layers[0].free == 40 + 1 - 6


def test_both_factors_are_sketched_and_the_budget_is_kept() -> None:
    rule = nscl.Budget(0.003)
    model, memory, optimizer = linear(rule=rule, rank=8, every=2)
    old = torch.randn(300, 40, dtype=torch.float64)
    memory.remember([old])
    for name in "01":
        projection = memory._state.projections[name]
        assert isinstance(projection, SketchedKronecker)
        assert projection.inputs is not None
        assert projection.outputs is not None
        assert projection.inputs.shape[-1] == projection.outputs.shape[-1] == 8
        assert isinstance(memory._state.gradients[name], SketchedCovariance)
    steps(model, optimizer, torch.randn(9, 40, dtype=torch.float64), 10)
    weighed = [layer.weighed or 0.0 for layer in memory.forgetting().layers]
    assert 0.002 < max(weighed) <= 0.003 * 1.001


def test_forgetting_is_within_the_bound_of_the_truth() -> None:
    model, memory, optimizer = linear(rule=nscl.Ridge(1.0), rank=8)
    old = torch.randn(300, 40, dtype=torch.float64) * 0.9 ** torch.arange(40)
    memory.remember([old])
    kept, before = memory._state.covariances["0"], copy.deepcopy(model[0])
    assert isinstance(kept, SketchedCovariance)
    steps(model, optimizer, torch.randn(9, 40, dtype=torch.float64))
    moved = float((model[0](old) - before(old)).detach().square().sum(-1).mean())
    weight, bias = model[0].weight - before.weight, model[0].bias - before.bias
    change = torch.cat([weight, bias[:, None]], -1)
    slack = float(kept.bound) / kept.rows * float(change.detach().square().sum())
    assert 0 < abs(memory.forgetting().layers[0].drift - moved) <= slack


@pytest.mark.parametrize("rule", SOFT[:2], ids=repr)
def test_convolutions_with_groups_are_held_as_by_the_full_memory(rule: Any) -> None:
    moved = []
    for rank in (None, 12):
        model = network()
        memory = nscl.Memory(model, rule=rule, rank=rank, every=1, acts_on="displacement")
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        memory.protect(optimizer)
        old = images(60, 0)
        memory.remember(old.split(13))
        before = model(old).detach()
        steps(model, optimizer, images(20, 1), 15)
        moved.append(float((model(old).detach() - before).square().mean()))
    assert moved[1] == pytest.approx(moved[0], rel=0.25)


def test_a_bias_that_stays_takes_its_feature_along() -> None:
    for rule in (nscl.Tolerance(1e-10), nscl.Penalty(1e9)):
        model, memory, optimizer = linear(rule=rule, rank=8, **({"every": 1} if rule.soft else {}))
        model[0].bias.requires_grad_(False)
        old = low_rank_rows(50, 0)
        memory.remember([old])
        before = model[0](old).detach()
        steps(model, optimizer, torch.randn(9, 40, dtype=torch.float64))
        assert (model[0](old) - before).abs().max() < 1e-5


def test_saved_loaded_merged_forgotten_and_on_disk(tmp_path: Path) -> None:
    model, memory, _ = linear(rank=8)
    data = torch.randn(200, 40, dtype=torch.float64)
    memory.remember([data])
    memory.save(tmp_path / "m.safetensors")
    loaded = nscl.Memory.load(tmp_path / "m.safetensors", model)
    assert loaded.rank == 8
    ours, theirs = (m._state.covariances["0"] for m in (memory, loaded))
    assert isinstance(ours, SketchedCovariance)
    assert isinstance(theirs, SketchedCovariance)
    assert torch.equal(ours.sums, theirs.sums)
    assert torch.equal(ours.lost, theirs.lost)
    assert torch.equal(ours.bound, theirs.bound)
    assert [layer.free for layer in loaded.report().layers] == [
        layer.free for layer in memory.report().layers
    ]
    disk = nscl.Memory(model, rank=8, offload="disk")
    disk.load_state_dict(memory.state_dict())
    assert disk.nbytes["covariances"] <= 64  # two numbers per layer
    disk.merge(memory)
    both = disk._state.covariances["0"]
    assert isinstance(both, SketchedCovariance)
    assert both.rows == 400
    assert torch.allclose(both.lost, 2 * ours.lost, rtol=0.5)
    assert (both.lost >= 2 * ours.lost).all()
    disk.forget("0")
    assert set(disk._state.covariances) == {"1"}
    assert nscl.Memory.load(tmp_path / "m.safetensors", model, exclude=["0"]).tasks == 1


@pytest.mark.parametrize("rank", [0, -3, 2.0, True, "8"])
def test_a_rank_is_a_whole_number(rank: Any) -> None:
    with pytest.raises(ValueError, match="rank must be a whole number"):
        nscl.Memory(nn.Linear(20, 20), rank=rank)


def test_what_needs_the_full_covariance_is_refused() -> None:
    for options in (
        {"rule": nscl.Ratio(10.0, literal=True)},
        {"rule": nscl.Ratio(10.0), "scale": "frobenius"},
        {"projector": lambda block, covariance, previous: None},
    ):
        with pytest.raises(ValueError, match="full covariances: leave rank=2 out"):
            nscl.Memory(nn.Linear(8, 2), rank=2, **options)


def test_a_wide_vocabulary_is_weighed_by_a_sketch() -> None:
    model = nn.Sequential(nn.Embedding(30, 6), nn.Flatten(), nn.Linear(12, 9000, bias=False))
    memory = nscl.Memory(model, rank=4)
    report = memory.remember([torch.randint(0, 30, (16, 2))])
    assert [layer.protected_by for layer in report.layers] == ["both factors"] * 2
    assert memory._state.gradients["2"].sums.shape == (1, 4, 9000)
