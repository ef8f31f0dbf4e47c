"""Frequent Directions against the full matrix: both bounds, exactness, merging."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nscl.core.covariance.convolution.unfold import Geometry, Patches
from nscl.core.covariance.low_rank import Sketch, shrink, sketch_of
from nscl.core.covariance.observations import InputRows, TokenIds
from nscl.core.covariance.sketch_accumulator import SketchAccumulator
from nscl.core.covariance.sketched_covariance import SketchedCovariance

CPU = torch.device("cpu")


def random_rows(groups: int, count: int, width: int, *, decay: float, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(groups, count, width, dtype=torch.float64, generator=generator)
    return rows * decay ** torch.arange(width, dtype=torch.float64)


def accumulated(rows: Tensor, rank: int, *, batch: int) -> Sketch:
    sums = SketchAccumulator(
        groups=len(rows), features=rows.shape[-1], constants=0, device=CPU, rank=rank
    )
    assert all(sums.add(InputRows(part), None) for part in rows.split(batch, 1))
    assert sums.rows == rows.shape[1]
    return sums.sketch()


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


@settings(max_examples=60, deadline=None)
@given(
    groups=st.integers(1, 2),
    count=st.integers(1, 60),
    width=st.integers(2, 24),
    rank=st.integers(1, 12),
    decay=st.sampled_from([1.0, 0.8, 0.3]),
    batch=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_both_bounds_hold(
    groups: int, count: int, width: int, rank: int, decay: float, batch: int, seed: int
) -> None:
    rows = random_rows(groups, count, width, decay=decay, seed=seed)
    found = accumulated(rows, rank, batch=batch)
    assert found.rows.shape[1] <= rank
    check_bounds(found, rows)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 8), st.integers(0, 40), st.integers(1, 40), st.integers(0, 99))
def test_merging_keeps_the_bounds(rank: int, first: int, second: int, seed: int) -> None:
    rows = random_rows(2, first + second, 12, decay=0.8, seed=seed)
    one, other = (sketch_of(part, rank) for part in rows.split([first, second], 1))
    merged = one.plus(other)
    check_bounds(merged, rows)
    assert (merged.lost >= one.lost + other.lost).all()  # what one has lost stays lost


@pytest.mark.parametrize("width", [40, 9])  # more and fewer features than rows in the buffer
def test_data_of_few_directions_lose_nothing(width: int) -> None:
    torch.manual_seed(0)
    few = torch.randn(1, 500, 8, dtype=torch.float64) @ torch.randn(8, width, dtype=torch.float64)
    found = accumulated(few, 8, batch=17)
    truth = few.mT @ few
    assert float(found.lost) == float(found.bound) == 0.0
    assert torch.allclose(found.rows.mT @ found.rows, truth, rtol=1e-12, atol=1e-12 * truth.max())


def test_eigenpairs_are_orthonormal_however_far_apart() -> None:
    torch.manual_seed(0)
    basis = torch.linalg.qr(torch.randn(30, 5, dtype=torch.float64))[0]
    values = torch.tensor([1e-12, 1e-6, 1.0, 1e3, 1e6], dtype=torch.float64)
    sketch = sketch_of((values.sqrt()[:, None] * basis.mT)[None], rank=8)
    found, vectors = sketch.eigenpairs()
    assert torch.allclose(found[0], values, rtol=1e-6)
    assert torch.allclose(vectors[0].mT @ vectors[0], torch.eye(5).double(), atol=1e-14)


def test_what_is_lost_counts_as_spread_evenly() -> None:
    rows = random_rows(2, 50, 10, decay=0.9, seed=0)
    covariance = SketchedCovariance.of(sketch_of(rows, 4), rows=50)
    truth, dense = rows.mT @ rows / 50, covariance.dense()
    trace = truth.diagonal(dim1=-2, dim2=-1).sum(-1)
    assert torch.allclose(dense.diagonal(dim1=-2, dim2=-1).sum(-1), trace)
    assert float(torch.linalg.eigvalsh(dense).min()) > 0
    matrix = torch.randn(2, 3, 10, dtype=torch.float64)
    assert torch.allclose(covariance.times(matrix), matrix @ dense)
    assert torch.allclose(covariance.diagonal(), dense.diagonal(dim1=-2, dim2=-1))
    part = covariance.mean([1, 4, 7])
    eye = torch.eye(3, dtype=torch.float64).expand(2, -1, -1)
    assert torch.allclose(part.times(eye), dense[:, [1, 4, 7]][:, :, [1, 4, 7]])


def test_patches_and_biases_are_rows_too() -> None:
    torch.manual_seed(0)
    images = torch.randn(6, 4, 5, 5)
    geometry = Geometry((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), groups=2)
    sums = SketchAccumulator(groups=2, features=18, constants=2, device=CPU, rank=20)
    assert sums.add(Patches(images, geometry), 1)
    assert sums.add(Patches(images[:0], geometry), 1)
    patches = torch.cat(list(Patches(images, geometry).unfolded()), 1).double()
    columns = [torch.zeros_like(patches[..., :1]), torch.ones_like(patches[..., :1])]
    rows = torch.cat([patches, *columns], -1)
    assert sums.rows == rows.shape[1] == 150
    found = sums.sketch()
    assert torch.allclose(found.rows.mT @ found.rows, rows.mT @ rows, rtol=1e-9, atol=1e-9)


def test_what_is_not_finite_is_reported_and_not_decomposed() -> None:
    sums = SketchAccumulator(groups=1, features=3, constants=0, device=CPU, rank=2)
    assert not sums.add(InputRows(torch.full((1, 9, 3), torch.inf)), None)
    with pytest.raises(TypeError, match="tokens are counted"):
        sums.add(TokenIds(torch.zeros(3, dtype=torch.long)), None)


def test_an_empty_sketch_is_neutral() -> None:
    rows = random_rows(2, 30, 6, decay=0.9, seed=1)
    alone = sketch_of(rows, 4)
    merged = Sketch.empty(2, 6, 4).plus(alone)
    assert torch.equal(merged.rows, alone.rows)
    assert torch.equal(merged.lost, alone.lost)
    assert shrink(rows[:, :0], 4)[0].shape == (2, 0, 6)
