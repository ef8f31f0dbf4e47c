"""One parabola for all tasks against the sum it stands for, and what its methods have in common."""

from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor, nn

from nscl.methods.base import Batch, Phase
from nscl.methods.regularization.penalty import PenaltyMethod, QuadraticPenalty
from nscl.training.config.build import build_config
from nscl.training.experiment import run
from nscl.training.process.device import Ranks
from nscl.training.setup import Setup
from tests.methods.digits import last_epoch
from tests.quick_runs import QuickRuns
from tests.runs import small

NAMES = ("ewc", "mas", "si")

terms = st.lists(
    st.tuples(st.floats(0, 1e3), st.floats(-5, 5)).filter(lambda t: t[0] == 0 or t[0] > 1e-9),
    min_size=1,
    max_size=8,
)


@given(terms, st.floats(-5, 5))
def test_a_sum_of_parabolas_is_a_parabola(tasks: list[tuple[float, float]], at: float) -> None:
    penalty = QuadraticPenalty()
    for importance, centre in tasks:
        penalty.add({"w": _number(importance)}, {"w": _number(centre)})
    w = nn.Parameter(_number(at))
    slow = torch.stack([0.5 * f * (w - c) ** 2 for f, c in tasks]).sum()
    slow.backward()
    assert w.grad is not None
    expected, w.grad = w.grad, None
    penalty.add_gradient({"w": w}, 3.0)
    size = 1e-9 * (1 + sum(f for f, _ in tasks))
    torch.testing.assert_close(w.grad, 3.0 * expected, rtol=1e-9, atol=size)
    assert penalty.value({"w": w}) == pytest.approx(slow.item(), rel=1e-9, abs=25 * size)


@given(terms, st.floats(0, 1))
def test_moving_keeps_one_centre(tasks: list[tuple[float, float]], keep: float) -> None:
    penalty, importance = QuadraticPenalty(), 0.0
    for new, centre in tasks:
        penalty.move({"w": _number(new)}, {"w": _number(centre)}, keep=keep)
        importance = keep * importance + new
    assert penalty.centre["w"].item() == tasks[-1][1]
    assert penalty.importance["w"].item() == pytest.approx(importance)


def test_float32_does_not_lose_the_gradient_near_the_centre() -> None:
    """ΣF·w − ΣF·w* would: both products are rounded before they are subtracted."""
    penalty, weight = QuadraticPenalty(), torch.tensor([1.1])
    for _ in range(20):
        penalty.add({"w": torch.tensor([1e4])}, {"w": weight})
    w = nn.Parameter(weight + 2.0**-20)
    w.grad = torch.zeros(1)
    penalty.add_gradient({"w": w}, 1.0)
    assert w.grad.item() == pytest.approx(2e5 * (w - weight).item(), rel=1e-5)


def _number(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)


def setup(name: str, tmp_path: Path, **settings: Any) -> tuple[Setup, PenaltyMethod]:
    built = Setup.build(small(name, tmp_path, **settings), Ranks())
    assert isinstance(built.method, PenaltyMethod)
    return built, built.method


def step(built: Setup, task: int, optimizer: torch.optim.Optimizer) -> None:
    """One step of the loop on real digits."""
    method, phase = built.method, Phase()
    images, labels = next(iter(built.loaders(method.training_split(task), purpose="test")))
    batch = Batch(images, labels, task)
    optimizer.zero_grad()
    method.loss(batch, phase).loss.backward()
    method.after_backward(batch, phase)
    optimizer.step()
    method.after_step(batch, phase)


def learn(built: Setup, task: int, steps: int = 3) -> None:
    built.method.start_task(task)
    optimizer = built.method.optimizer(task, Phase())
    for _ in range(steps):
        step(built, task, optimizer)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_does_not_grow_with_tasks(name: str, tmp_path: Path) -> None:
    """The steps' cost: test_step_cost.py."""
    built, method = setup(name, tmp_path)
    kept = []
    for _ in range(5):
        learn(built, 0, steps=1)
        method.remember(0)
        kept.append(method.state_bytes())
    backbone = sum(p.nbytes for p in method.shared_parameters().values())
    assert kept == [(3 if name == "si" else 2) * backbone] * 5


@pytest.mark.parametrize("name", NAMES)
def test_old_heads_are_not_trained_and_have_no_importance(name: str, tmp_path: Path) -> None:
    built, method = setup(name, tmp_path, optim={"weight_decay": 0.1})
    learn(built, 0)
    old = [p.detach().clone() for _, p in method.model.head_parameters(0)]
    method.end_task(0)
    backbone = {n for n, _ in method.model.backbone_parameters()}
    assert set(method.penalty.importance) == backbone
    learn(built, 1)
    now = [p for _, p in method.model.head_parameters(0)]
    assert all(torch.equal(a, b) for a, b in zip(old, now, strict=True))
    known = {id(p) for g in method.optimizer(1, Phase()).param_groups for p in g["params"]}
    assert not known & {id(p) for p in now}


@pytest.mark.parametrize("name", NAMES)
def test_norm_layers_are_held_too(name: str, tmp_path: Path) -> None:
    built, method = setup(name, tmp_path, model={"name": "convnet", "width": 4})
    learn(built, 0)
    statistics = {n: b.clone() for n, b in method.model.named_buffers()}
    method.end_task(0)
    norms = {n for n, _ in method.model.norm_parameters()}
    assert norms
    assert all(method.penalty.importance[n].max() > 0 for n in norms)
    assert all(torch.equal(statistics[n], b) for n, b in method.model.named_buffers())


@pytest.mark.parametrize("name", NAMES)
def test_the_one_head_of_a_domain_stream_is_shared_and_held(name: str, tmp_path: Path) -> None:
    config = build_config("permuted-digits", {"method": name, "out": tmp_path})
    built = Setup.build(config, Ranks())
    learn(built, 0)
    built.method.end_task(0)
    assert isinstance(built.method, PenaltyMethod)
    assert built.method.penalty.importance["shared_head.weight"].max() > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_penalty_works_and_is_reported(name: str, tmp_path: Path) -> None:
    built, method = setup(name, tmp_path)
    learn(built, 0)
    assert method.metrics().get("penalty", 0.0) == 0.0
    method.end_task(0)
    learn(built, 1, steps=1)
    found = method.metrics()
    weights = {n: p.detach() for n, p in method.shared_parameters().items()}
    slow = sum(
        float((omega * (weights[n] - method.penalty.centre[n]) ** 2).sum())
        for n, omega in method.penalty.importance.items()
    )
    strength = method.options.strength  # type: ignore[attr-defined]
    assert found["penalty"] == pytest.approx(strength / 2 * slow, rel=1e-4)
    assert found["penalty"] > 0
    assert found["curvature"] > 0


@pytest.mark.parametrize("name", NAMES)
def test_after_the_last_task_nothing_is_computed(name: str, tmp_path: Path) -> None:
    built, method = setup(name, tmp_path, data={"first": 1})
    learn(built, 0)
    method.end_task(0)
    assert method.penalty.steepest() == 0.0


def test_clip_norm_bounds_the_whole_gradient(tmp_path: Path) -> None:
    built, method = setup("mas", tmp_path, options={"strength": 1e6, "clip_norm": 0.5})
    learn(built, 0)
    method.end_task(0)
    learn(built, 1)
    optimizer = method.optimizer(1, Phase())
    for _, p in method.model.head_parameters(0):
        p.grad = torch.full_like(p, 1e9)  # no optimizer knows this head: it must not count
    step(built, 1, optimizer)
    learned = [p for group in optimizer.param_groups for p in group["params"]]
    gradients = [p.grad for p in learned if p.grad is not None]
    assert len(gradients) == len(learned)
    assert torch.stack([g.norm() for g in gradients]).norm().item() == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize("seeds", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_forgets_less_than_fine_tuning_and_knows_more(
    name: str, seeds: int, quick_runs: QuickRuns
) -> None:
    plain, held = ([quick_runs(n, seed) for seed in range(seeds)] for n in ("finetune", name))
    assert mean(r.bwt for r in plain) < -5
    assert mean(r.bwt for r in held) > mean(r.bwt for r in plain) / 4
    assert mean(r.acc for r in held) > mean(r.acc for r in plain) + 5
    for result in held:
        found = last_epoch(quick_runs.folder, result)
        assert found["method/penalty"] > 0
        assert found["method/curvature"] > 0
        assert name != "si" or found["method/path"] > 0


def test_it_works_with_pictures_of_ones_own(tmp_path: Path) -> None:
    """EWC on folders of pictures, which list them class by class."""
    rng = np.random.default_rng(0)
    for part, label, number in product(("train", "test"), "abcd", range(5)):
        folder = tmp_path / "pictures" / part / label
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    settings = {
        "method": "ewc",
        "out": tmp_path / "runs",
        "data": {"tasks": 2, "size": 8},
        "optim": {"epochs": 1, "batch_size": 4},
        "model": {"name": "convnet", "width": 4},
        "options": {"samples": 7},
    }
    result = run(build_config(f"folder:{tmp_path / 'pictures'}", settings))
    assert result.accuracy.tasks == 2
    assert last_epoch(tmp_path / "runs", result)["method/penalty"] > 0
