"""Frequent Directions against the full matrix: both bounds, exactness, merging."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nscl.core.covariance.low_rank import Sketch, shrink, sketch_of


def random_rows(groups: int, count: int, width: int, *, decay: float, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(groups, count, width, dtype=torch.float64, generator=generator)
    return rows * decay ** torch.arange(width, dtype=torch.float64)


def check_bounds(found: Sketch, rows: Tensor) -> None:
    """``0 ≼ C − BᵀB ≼ δ·I`` and ``δ ≤ tail_k / (ℓ − k)`` for every k, per group."""
    C = rows.mT @ rows
    missing = torch.linalg.eigvalsh(C - found.rows.mT @ found.rows)
    values = torch.linalg.eigvalsh(C).flip(-1)
    rounding = 1e-11 * values[:, 0].clamp_min(1e-300)
    assert (missing[:, 0] >= -rounding).all()
    assert (missing[:, -1] <= found.bound + rounding).all()
    for k in range(found.rank):
        tail = values[:, k:].sum(-1)
        assert (found.bound <= tail / (found.rank - k) + rounding).all()
    energy = found.rows.square().sum((1, 2))
    assert torch.allclose(energy + found.lost, values.sum(-1), rtol=1e-10)
    assert (found.rest <= found.bound + rounding).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 8), st.integers(0, 40), st.integers(1, 40), st.integers(0, 99))
def test_merging_keeps_the_bounds(rank: int, first: int, second: int, seed: int) -> None:
    rows = random_rows(2, first + second, 12, decay=0.8, seed=seed)
    one, other = (sketch_of(part, rank) for part in rows.split([first, second], 1))
    merged = one.plus(other)
    check_bounds(merged, rows)
    assert (merged.lost >= one.lost + other.lost).all()  # what one has lost stays lost


def test_eigenpairs_are_orthonormal_however_far_apart() -> None:
    torch.manual_seed(0)
    basis = torch.linalg.qr(torch.randn(30, 5, dtype=torch.float64))[0]
    values = torch.tensor([1e-12, 1e-6, 1.0, 1e3, 1e6], dtype=torch.float64)
    sketch = sketch_of((values.sqrt()[:, None] * basis.mT)[None], rank=8)
    found, vectors = sketch.eigenpairs()
    assert torch.allclose(found[0], values, rtol=1e-6)
    assert torch.allclose(vectors[0].mT @ vectors[0], torch.eye(5).double(), atol=1e-14)


def test_an_empty_sketch_is_neutral() -> None:
    rows = random_rows(2, 30, 6, decay=0.9, seed=1)
    alone = sketch_of(rows, 4)
    merged = Sketch.empty(2, 6, 4).plus(alone)
    assert torch.equal(merged.rows, alone.rows)
    assert torch.equal(merged.lost, alone.lost)
    assert shrink(rows[:, :0], 4)[0].shape == (2, 0, 6)
