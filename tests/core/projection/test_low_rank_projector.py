"""Thin projections against the dense projector they stand for."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nscl.core.projection.low_rank_projector import Mask, Projection, thin_projection


def orthonormal(groups: int, d: int) -> Tensor:
    return torch.linalg.qr(torch.randn(groups, d, d, dtype=torch.float64))[0]


def dense(projection: Projection, groups: int, d: int) -> Tensor:
    matrix = torch.eye(d, dtype=torch.float64).expand(groups, d, d).clone()
    projection.apply_(matrix)
    return matrix


@st.composite
def hard(draw: st.DrawFn, groups: int | None = None) -> tuple[Tensor, Tensor]:
    """Eigenvectors and 0/1 weights."""
    torch.manual_seed(draw(st.integers(0, 99)))
    groups, d = groups or draw(st.integers(1, 3)), draw(st.integers(1, 9))
    weights = draw(
        st.lists(
            st.lists(st.sampled_from([0.0, 1.0]), min_size=d, max_size=d),
            min_size=groups,
            max_size=groups,
        )
    )
    return orthonormal(groups, d), torch.tensor(weights, dtype=torch.float64)


@given(case=hard())
def test_it_is_an_orthogonal_projector(case: tuple[Tensor, Tensor]) -> None:
    vectors, weights = case
    P = dense(thin_projection(vectors, weights), *weights.shape)
    assert torch.allclose(P, (vectors * weights[:, None]) @ vectors.mT, atol=1e-13)
    assert torch.allclose(P @ P, P, atol=1e-12)
    assert torch.allclose(P, P.mT, atol=1e-12)
    trace = P.diagonal(dim1=-2, dim2=-1).sum(-1)
    assert torch.allclose(trace, weights.sum(-1), atol=1e-12)


@given(case=hard(groups=1))
def test_the_basis_is_at_most_half(case: tuple[Tensor, Tensor]) -> None:
    vectors, weights = case
    projection = thin_projection(vectors, weights)
    assert projection.columns <= weights.shape[1] // 2
    assert projection.nbytes == projection.columns * weights.shape[1] * 8


@given(d=st.integers(1, 8), groups=st.integers(1, 3), seed=st.integers(0, 99))
def test_soft_weights_shrink_each_direction(d: int, groups: int, seed: int) -> None:
    torch.manual_seed(seed)
    vectors, weights = orthonormal(groups, d), torch.rand(groups, d, dtype=torch.float64)
    weights[:, 0] = 1.0
    projection = thin_projection(vectors, weights)
    assert torch.allclose(
        dense(projection, groups, d), (vectors * weights[:, None]) @ vectors.mT, atol=1e-13
    )
    assert projection.columns <= d
    assert projection.dense == (d > 2)  # one product, where two would be thicker than it


@given(case=hard())
def test_frobenius_divides_each_group_by_its_own_norm(case: tuple[Tensor, Tensor]) -> None:
    vectors, weights = case
    P = dense(thin_projection(vectors, weights, frobenius=True), *weights.shape)
    whole = (vectors * weights[:, None]) @ vectors.mT
    norms = weights.sum(-1).sqrt().clamp_min(1e-300)
    assert torch.allclose(P, whole / norms[:, None, None], atol=1e-12)


@given(case=hard(), frobenius=st.booleans())
def test_no_basis_is_thicker_than_half(case: tuple[Tensor, Tensor], frobenius: bool) -> None:
    projection = thin_projection(*case, frobenius=frobenius)
    assert projection.dense or 2 * projection.columns <= case[1].shape[-1]


@given(case=hard(), biases=st.integers(0, 2), out=st.integers(1, 4), frobenius=st.booleans())
def test_biases_are_further_features(
    case: tuple[Tensor, Tensor], biases: int, out: int, frobenius: bool
) -> None:
    vectors, weights = case
    groups, d = weights.shape
    biases = min(biases, d - 1)
    projection = thin_projection(vectors, weights, frobenius=frobenius)
    whole = torch.randn(groups, out, d, dtype=torch.float64)
    expected = whole @ dense(projection, groups, d)
    weight = whole[..., : d - biases].clone()
    apart = [whole[..., d - biases + i].clone() for i in range(biases)]
    projection.apply_(weight, apart)
    assert torch.allclose(weight, expected[..., : d - biases], atol=1e-12)
    for i, bias in enumerate(apart):
        assert torch.allclose(bias, expected[..., d - biases + i], atol=1e-12)


def test_some_groups_only() -> None:
    vectors, weights = orthonormal(3, 4), (torch.rand(3, 4) > 0.5).double()
    projection = thin_projection(vectors, weights)
    delta = torch.randn(3, 2, 4, dtype=torch.float64)
    part = delta[1:3].clone()
    projection.apply_(delta)
    projection.groups(1, 3).apply_(part)
    assert torch.allclose(part, delta[1:3], atol=1e-14)


def test_it_goes_where_the_parameters_are() -> None:
    projection = thin_projection(orthonormal(1, 4), torch.tensor([[1.0, 0, 0, 0]]).double())
    moved = projection.to(device=torch.device("cpu"), dtype=torch.float32)
    assert moved.basis.dtype == torch.float32
    assert (moved.removes, moved.scale) == (projection.removes, projection.scale)
    mask = Mask(torch.tensor([1.0, 0.0])).to(device=torch.device("cpu"), dtype=torch.float64)
    assert (mask.free.dtype, mask.nbytes) == (torch.float64, 16)


@pytest.mark.parametrize("frobenius", [False, True])
def test_a_soft_projector_of_all_directions_is_one_product(frobenius: bool) -> None:
    torch.manual_seed(0)
    vectors, _ = torch.linalg.qr(torch.randn(1, 6, 6, dtype=torch.float64))
    weights = torch.linspace(0.1, 0.9, 6, dtype=torch.float64)[None]
    projection = thin_projection(vectors, weights, frobenius=frobenius)
    assert projection.dense
    assert projection.basis.shape == (1, 6, 6)
    whole = torch.randn(1, 3, 6, dtype=torch.float64)
    weight, biases = whole[..., :4].clone(), [whole[..., 4].clone(), whole[..., 5].clone()]
    projection.apply_(weight, biases)
    truth = whole @ (vectors * weights[:, None]) @ vectors.mT
    truth /= weights.norm() if frobenius else 1.0
    assert torch.allclose(torch.cat([weight, *(b[..., None] for b in biases)], -1), truth)
