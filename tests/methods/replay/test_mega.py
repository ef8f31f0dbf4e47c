"""MEGA-I and MEGA-II: the specification's values, the closed form against a search, a run."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nscl.methods.replay.flat_gradients import angle, inner
from nscl.methods.replay.mega import MEGA, mega_one, mega_two
from nscl.training.experiment import run
from tests.methods.digits import backward_transfer, last_epoch, written_options
from tests.methods.labs import batch_samples, kept_samples, slow_gradient, trained, weights
from tests.runs import small

WIDTHS = (2, 3, 2, 4)
LOSSES = st.floats(0.01, 100.0)


def turned(g: Tensor, r: Tensor, current: float, old: float, *, clip: bool = True) -> Tensor:
    rows = torch.stack([g, r])
    a, b = mega_two(inner(rows, rows), current, old, clip_half_pi=clip)
    return a * g + b * r


def test_mega_one_weighs_by_the_ratio_of_losses() -> None:
    assert mega_one(2.0, 1.0) == (1.0, 0.5)  # row 18 of the sanity table: g + 0.5 r
    assert mega_one(0.0, 1.0) == (0.0, 1.0)
    assert mega_one(1e-10, 1.0) == (0.0, 1.0)
    assert mega_one(1e-3, 1.0, eps=1e-2) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(1.0, (0.707107, 0.707107)), (3.0, (0.316228, 0.948683)), (0.0, (1.0, 0.0))],  # row 19
)
def test_mega_two_values_of_the_specification(ratio: float, expected: tuple[float, float]) -> None:
    found = turned(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), 0.7, 0.7 * ratio)
    assert found.tolist() == pytest.approx(expected, abs=1e-6)


def test_a_mixture_that_cancels_has_no_angle_and_no_error() -> None:
    assert angle(torch.tensor([[1.0, -1e-16], [-1e-16, -2e-17]], dtype=torch.float64)) == 0.0


def pair(seed: int, size: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    scales = 10 ** torch.empty(2, 1, dtype=torch.float64).uniform_(-6, 3, generator=generator)
    return torch.randn(2, size, dtype=torch.float64, generator=generator) * scales


@given(st.integers(0, 2**32 - 1), st.integers(2, 20), LOSSES, LOSSES)
def test_the_turn_is_the_best_of_a_fine_search_and_keeps_the_length(
    seed: int, size: int, current: float, old: float
) -> None:
    g, r = pair(seed, size)
    between = angle(inner(torch.stack([g, r]), torch.stack([g, r])))
    found = turned(g, r, current, old, clip=False)
    both = torch.stack([g, found])
    turn = angle(inner(both, both))

    def value(beta: Tensor) -> Tensor:
        return current * beta.cos() + old * (between - beta).cos()

    grid = torch.linspace(0, math.pi, 20_001, dtype=torch.float64)
    best = float(value(grid).max())
    assert float(value(torch.tensor(turn, dtype=torch.float64))) >= best - 1e-9 * (current + old)
    assert 0 <= turn <= between + 1e-6
    assert float(found.norm()) == pytest.approx(float(g.norm()), rel=1e-9)


@given(st.integers(0, 2**32 - 1), LOSSES, LOSSES)
def test_a_right_angle_is_the_most_it_turns_by_default(
    seed: int, current: float, old: float
) -> None:
    g, r = pair(seed, 2)
    free = turned(g, r, current, old, clip=False)
    clipped = turned(g, r, current, old)
    assert float(clipped.norm()) == pytest.approx(float(g.norm()), rel=1e-9)
    if float(free @ g) >= 0:
        torch.testing.assert_close(clipped, free)
    else:
        assert float(clipped @ g) == pytest.approx(0.0, abs=1e-9 * float(g @ g))
        assert float(clipped @ r) != pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("r", [(2.0, 4.0), (-2.0, -4.0), (0.0, 0.0)])
def test_without_a_plane_to_turn_in_the_gradient_stays(r: tuple[float, float]) -> None:
    g = torch.tensor([1.0, 2.0])
    assert torch.equal(turned(g, torch.tensor(r), 1.0, 5.0), g)
    assert torch.equal(turned(torch.zeros(2), torch.tensor(r), 1.0, 5.0), torch.zeros(2))


def test_small_gradients_are_not_taken_for_parallel_ones() -> None:
    """The authors' test is absolute, and fires for these."""
    found = turned(torch.tensor([1e-6, 0.0]), torch.tensor([0.0, 1e-6]), 1.0, 1.0)
    assert (found * 1e6).tolist() == pytest.approx((0.707107, 0.707107), abs=1e-6)


@pytest.mark.parametrize(
    ("variant", "scenario"), [("mega-i", "task"), ("mega-ii", "task"), ("mega-ii", "domain")]
)
def test_a_step_is_the_slow_truth_in_float64(variant: Any, scenario: str) -> None:
    """Losses and gradients of single samples, the turn found by search over many angles."""
    widths = WIDTHS if scenario == "task" else (3, 3, 3, 3)
    steps = trained(MEGA, 3, widths, variant=variant, scenario=scenario)
    method, model = steps.method, steps.method.model
    assert isinstance(method, MEGA)

    def loss(samples: list[tuple[Tensor, Tensor, int]]) -> float:
        parts = [
            float(torch.nn.functional.cross_entropy(model(x[None], k), y[None]).detach())
            for x, y, k in samples
        ]
        return sum(parts) / len(parts)

    for start in range(0, 40, 8):
        batch = steps.batch(8, start=start)
        now, old = batch_samples(batch), [s for k in range(3) for s in kept_samples(method, k)]
        g, r = slow_gradient(model, now), slow_gradient(model, old)
        expected = slow_mixture(variant, g, r, loss(now), loss(old))
        before = weights(model)
        steps.step(batch)
        found = (before - weights(model)) / 0.1
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6 * float(g.norm()))
    assert method.metrics()["turned"] > 0
    assert method.metrics()["reference_weight"] > 0


def slow_mixture(variant: str, g: Tensor, r: Tensor, current: float, old: float) -> Tensor:
    if variant == "mega-i":
        return g + old / current * r
    across = r - (r @ g) / (g @ g) * g
    u, v = g / g.norm(), across / across.norm()
    betas = torch.linspace(0, math.pi / 2, 2_000_001, dtype=torch.float64)
    w = math.acos(float(u @ r / r.norm()))
    beta = betas[(current * betas.cos() + old * (w - betas).cos()).argmax()]
    return g.norm() * (beta.cos() * u + beta.sin() * v)


@pytest.mark.parametrize(
    ("variant", "scenario"), [("mega-ii", "task"), ("mega-ii", "domain"), ("mega-i", "task")]
)
def test_a_run_on_the_digits_mixes_and_shows_the_budget(
    variant: str, scenario: str, tmp_path: Path
) -> None:
    options = {"variant": variant, "per_class": 5}
    result = run(small("mega", tmp_path, data={"scenario": scenario}, options=options))
    figures = last_epoch(tmp_path, result)
    assert figures["method/turned"] > 0
    assert figures["method/reference_weight"] > 0
    assert written_options(tmp_path, result)["variant"] == variant
    assert result.state_bytes == 2 * 2 * 5 * (64 + 8)
    assert result.stores == "data"


@pytest.mark.slow  # one seed: test_quick_digits
def test_it_forgets_less_than_fine_tuning_for_every_seed() -> None:
    pairs = zip(backward_transfer("mega"), backward_transfer("finetune"), strict=True)
    assert all(mine > plain for mine, plain in pairs)
