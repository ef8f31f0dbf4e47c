"""Growing bases against the algorithm as published: SVDs of representation matrices."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nscl.core.projection.low_rank_projector import Projection
from nscl.methods.projection.subspaces.basis_growth import (
    compact,
    direction_importances,
    grow,
    spectrum_of,
    strengths,
)


def moments(rows: Tensor) -> Tensor:
    return (rows.mT @ rows / len(rows))[None]


def rows_of_rank(rank: int, d: int = 12, count: int = 40) -> Tensor:
    scales = 0.5 ** torch.arange(rank, dtype=torch.float64)
    return torch.randn(count, rank).double() * scales @ torch.randn(rank, d).double()


def published(basis: Tensor | None, rows: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """docs/methods.md, "GPM": representation matrix, SVD, smallest k that reaches the share."""
    R = rows.mT
    M = R.new_zeros(len(R), 0) if basis is None else basis
    U, S, _ = torch.linalg.svd(R - M @ M.mT @ R, full_matrices=False)
    total, explained = R.square().sum(), (M @ M.mT @ R).square().sum()
    k = 0
    while explained + S[:k].square().sum() < threshold * total * (1 - 1e-12):
        k += 1
    return torch.cat([M, U[:, :k]], 1), S[:k]


def test_row_21_the_definition_and_the_release() -> None:
    C = torch.diag(torch.tensor([9.0, 1.0], dtype=torch.float64))[None]
    assert grow(None, C, threshold=0.97).basis.shape[-1] == 2
    assert grow(None, C, threshold=0.97, release=True).basis.shape[-1] == 1
    later = grow(torch.eye(2, dtype=torch.float64)[None, :, :1], C, threshold=0.97, release=True)
    assert later.basis.shape[-1] == 2  # only the first task is one short


def test_a_step_loses_its_part_in_the_basis() -> None:
    step = torch.ones(1, 1, 2)
    Projection(torch.eye(2)[None, :, :1], removes=True).apply_(step)
    assert step.tolist() == [[[0.0, 1.0]]]


@given(seed=st.integers(0, 10**6), threshold=st.floats(0.5, 0.999), tasks=st.integers(1, 4))
def test_equals_the_published_algorithm(seed: int, threshold: float, tasks: int) -> None:
    torch.manual_seed(seed)
    mine: Tensor | None = None
    theirs: Tensor | None = None
    for task in range(tasks):
        rows = rows_of_rank(2 + task)
        mine = grow(mine, moments(rows), threshold=threshold).basis
        theirs, _ = published(theirs, rows, threshold)
        assert mine.shape[-1] == theirs.shape[-1]
        assert torch.allclose(mine[0] @ mine[0].mT, theirs @ theirs.mT, atol=1e-8)


def test_orthonormal_after_ten_updates_and_never_more_than_all_directions() -> None:
    basis, d = None, 20
    for _ in range(10):
        basis = grow(basis, moments(rows_of_rank(15, d)), threshold=0.999).basis
    assert basis is not None
    assert basis.shape[-1] <= d
    gram = basis[0].mT @ basis[0]
    assert (gram - torch.eye(len(gram), dtype=torch.float64)).abs().max() < 1e-8


def test_a_second_task_inside_of_the_basis_adds_nothing() -> None:
    first = rows_of_rank(4)
    basis = grow(None, moments(first), threshold=1 - 1e-6).basis
    assert basis.shape[-1] == 4
    again = torch.randn(30, 40).double() @ first
    assert grow(basis, moments(again), threshold=1 - 1e-6).basis.shape[-1] == 4


def test_nothing_is_added_for_rows_of_zeros() -> None:
    grown = grow(None, torch.zeros(1, 3, 3, dtype=torch.float64), threshold=0.9)
    assert grown.basis.shape[-1] == 0
    again = grow(
        torch.eye(3, dtype=torch.float64)[None, :, :1], torch.zeros(1, 3, 3).double(), threshold=0.9
    )
    assert again.basis.shape[-1] == 1
    assert torch.allclose(again.frame @ again.frame.mT, torch.eye(3).double())


def test_groups_are_independent() -> None:
    parts = [rows_of_rank(1), rows_of_rank(5), torch.zeros(4, 12).double()]
    bases: list[Tensor | None] = [None, None, None]
    together: Tensor | None = None
    for task in range(3):
        C = torch.cat([moments(rows) for rows in parts])
        together = compact(grow(together, C, threshold=0.95).basis)
        bases = [
            grow(b, moments(r), threshold=0.95).basis for b, r in zip(bases, parts, strict=True)
        ]
        parts = [rows_of_rank(4), rows_of_rank(1), rows_of_rank(1 + task)]
    for group, alone in enumerate(bases):
        assert alone is not None
        mine = together[group]  # type: ignore[index]
        assert torch.allclose(mine @ mine.mT, alone[0] @ alone[0].mT, atol=1e-8)
    assert together is not None
    assert together.shape[-1] == max(b.shape[-1] for b in bases if b is not None)


@given(seed=st.integers(0, 10**6))
def test_the_reported_spectrum_is_what_the_projection_does(seed: int) -> None:
    torch.manual_seed(seed)
    basis = grow(None, moments(rows_of_rank(3)), threshold=0.9).basis
    C = moments(rows_of_rank(6))
    grown = grow(basis, C, threshold=0.95)
    projection = Projection(grown.basis, removes=True)
    spectrum = spectrum_of(grown.frame, C, projection)
    P = torch.eye(12).double() - grown.basis[0] @ grown.basis[0].mT
    assert spectrum.free == pytest.approx(12 - grown.basis.shape[-1])
    assert spectrum.share == pytest.approx(float((P @ C[0]).trace() / C[0].trace()), abs=1e-9)
    assert spectrum.share <= 0.05 + 1e-9
    assert (spectrum.eigenvalues.diff() >= 0).all()


def test_row_22_importances() -> None:
    found = direction_importances(torch.tensor([[2.0, 1.0]]), 10.0)
    assert found[0].tolist() == pytest.approx([1.0, 0.916667], abs=1e-6)
    assert direction_importances(torch.zeros(1, 3), 10.0).tolist() == [[0.0, 0.0, 0.0]]
    assert direction_importances(torch.zeros(1, 0), 10.0).shape == (1, 0)


def test_strengths_are_the_published_ones() -> None:
    """√Σ_j (M_i·U_j)² s_j² with (U, s) the SVD of MMᵀR, and the residual's singular values."""
    old, _ = published(None, rows_of_rank(3), 0.9)
    rows = rows_of_rank(6)
    M, new = published(old, rows, 0.97)
    U, S, _ = torch.linalg.svd(old @ old.mT @ rows.mT, full_matrices=False)
    expected = torch.cat([((old.mT @ U).square() @ S.square()).sqrt(), new])
    found = strengths(M[None], moments(rows))[0] * len(rows) ** 0.5
    assert torch.allclose(found, expected, atol=1e-8)
