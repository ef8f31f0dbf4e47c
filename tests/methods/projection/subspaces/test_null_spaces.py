"""Combined null spaces against the singular value decomposition they stand for."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nscl.core.projection.low_rank_projector import Projection, thin_projection
from nscl.methods.projection.subspaces.null_spaces import (
    Shared,
    combine_null_spaces,
    projector,
    threshold,
)


def onto(basis: Tensor) -> Tensor:
    return (basis @ basis.mT)[None]


def test_row_23() -> None:
    e = torch.eye(3).double()
    before, now = e[:, :2], e[:, 1:]
    singular = torch.linalg.svdvals(torch.cat([before, now], 1))
    assert singular.tolist() == pytest.approx([math.sqrt(2), 1, 1])
    vectors, weights = combine_null_spaces(onto(before), onto(now), part=0.9)
    assert weights.sum() == 1
    assert (vectors[0] * weights @ vectors[0].mT - torch.diag(e[1])).abs().max() < 1e-12


def test_the_threshold_goes_from_first_towards_last() -> None:
    found = [threshold(i, 10, first=160.0, last=150.0) for i in (0, 8, 9)]
    assert found == pytest.approx([160.0, 151.1111, 150.0], abs=1e-4)
    assert threshold(0, 1, first=160.0, last=150.0) == 160.0


@given(
    seed=st.integers(0, 10**6), a=st.integers(0, 7), b=st.integers(0, 7), part=st.floats(0.3, 1.0)
)
def test_equals_the_singular_vectors_of_both_bases_side_by_side(
    seed: int, a: int, b: int, part: float
) -> None:
    torch.manual_seed(seed)
    before, now = (torch.linalg.qr(torch.randn(8, n).double()).Q for n in (a, b))
    vectors, weights = combine_null_spaces(onto(before), onto(now), part=part)
    k = min(8, math.floor((a + b) / 2 * part))
    assert weights.sum() == k
    U, S, _ = torch.linalg.svd(torch.cat([before, now], 1))
    clear = k == 0 or k == min(8, a + b) or S[k - 1] - S[k] > 1e-6  # else any of several will do
    if clear:
        found = (vectors * weights[:, None]) @ vectors.mT
        assert torch.allclose(found, onto(U[:, :k]), atol=1e-6)


def test_a_space_shares_all_of_itself() -> None:
    basis = torch.linalg.qr(torch.randn(6, 3).double()).Q
    vectors, weights = combine_null_spaces(onto(basis), onto(basis), part=1.0)
    assert torch.allclose((vectors * weights[:, None]) @ vectors.mT, onto(basis))
    assert not Shared(0.9).literal


@pytest.mark.parametrize("frobenius", [False, True])
@pytest.mark.parametrize("counts", [[1], [5], [0], [2, 5]])
def test_the_projector_is_recovered_from_a_thin_and_scaled_one(
    counts: list[int], frobenius: bool
) -> None:
    Q = torch.linalg.qr(torch.randn(len(counts), 6, 6).double()).Q
    weights = (torch.arange(6) < torch.tensor(counts)[:, None]).double()
    expected = (Q * weights[:, None]) @ Q.mT
    thin = thin_projection(Q, weights, frobenius=frobenius)
    assert torch.allclose(projector(thin), expected, atol=1e-10)
    rounded = thin.to(device=Q.device, dtype=torch.float32)
    assert isinstance(rounded, Projection)
    assert torch.allclose(projector(rounded), expected, atol=1e-5)
