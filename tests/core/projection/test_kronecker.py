"""The proximal step against the dense Kronecker system and a generic solver, in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor

from nscl.core.projection.kronecker import (
    Diagonal,
    Kronecker,
    make_diagonal,
    make_kronecker,
    make_token_kronecker,
    smallest_multiplier,
)
from nscl.core.projection.rules import Budget, Penalty
from nscl.core.projection.spectrum import decompose, eigenpairs


def second_moments(size: int, rank: int | None = None) -> Tensor:
    rows = torch.randn(3 * size, rank or size, dtype=torch.float64)
    rows = rows @ torch.randn(rank or size, size, dtype=torch.float64)
    return (rows.mT @ rows / len(rows))[None]


def factors(out: int, width: int, *, rank: int | None = None, tasks: int = 1) -> Kronecker:
    C, G = second_moments(width, rank), second_moments(out)
    spectrum, vectors = decompose(C, Penalty())
    inputs = (spectrum.eigenvalues, spectrum.floor, vectors)
    return make_kronecker(inputs, eigenpairs(G), tasks=tasks)


def dense(found: Kronecker, out: int, width: int) -> Tensor:
    """The matrix of ``D ↦ G̃ D C̃`` on the flattened displacement."""
    assert found.inputs is not None
    C = (found.inputs[0] * found.energies[0]) @ found.inputs[0].mT
    if found.outputs is None or found.gains is None:
        return torch.kron(torch.eye(out, dtype=C.dtype), C)
    return torch.kron((found.outputs[0] * found.gains[0]) @ found.outputs[0].mT, C)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(1, 6), st.floats(1e-3, 1e3), st.integers(1, 4))
def test_the_step_is_the_closed_form_minimiser(
    out: int, width: int, strength: float, tasks: int
) -> None:
    torch.manual_seed(out * 7 + width)
    found = factors(out, width, tasks=tasks)
    D = torch.randn(1, out, width, dtype=torch.float64)
    system = torch.eye(out * width, dtype=D.dtype) + strength * 0.5 * dense(found, out, width)
    truth = torch.linalg.solve(system, D.flatten()).view_as(D)
    found.shrink_(D, Penalty(strength).multiplier, rate=0.5, allowance=0.0)
    assert torch.allclose(D, truth, rtol=1e-9, atol=1e-12)


def test_the_ratios_are_relative_to_their_means_and_count_tasks() -> None:
    found = factors(3, 4, tasks=5)
    assert found.gains is not None
    assert float(found.energies.mean()) == pytest.approx(5.0)
    assert float(found.gains.mean()) == pytest.approx(1.0)


@pytest.mark.parametrize("share", [0.5, 0.01, 1e-6])
def test_a_budget_is_the_projection_onto_its_ellipsoid(share: float) -> None:
    torch.manual_seed(0)
    found = factors(3, 4)
    D = torch.randn(1, 3, 4, dtype=torch.float64)
    allowance, given_ = share * found.cost(D), D.clone().flatten().numpy()
    H = dense(found, 3, 4).numpy()
    found.shrink_(D, Budget().multiplier, rate=0.0, allowance=allowance)
    assert found.cost(D) == pytest.approx(allowance, rel=1e-9)
    ours = float(((D.flatten().numpy() - given_) ** 2).sum())
    scale = np.sqrt(allowance)
    solved = minimize(
        lambda x: ((x - given_) ** 2).sum(),
        D.flatten().numpy() * 0.5,
        jac=lambda x: 2 * (x - given_),
        constraints={
            "type": "ineq",
            "fun": lambda x: 1 - x @ H @ x / scale**2,
            "jac": lambda x: -2 * H @ x / scale**2,
        },
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-14},
    )
    assert ours <= solved.fun * (1 + 1e-6)
    assert np.allclose(solved.x, D.flatten().numpy(), atol=1e-4)


def test_what_is_within_its_budget_keeps_every_bit() -> None:
    found = factors(3, 4)
    D = torch.randn(1, 3, 4, dtype=torch.float64)
    before = D.clone()
    found.shrink_(D, Budget().multiplier, rate=0.0, allowance=2 * found.cost(D))
    assert torch.equal(D, before)


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-9, 1.0), st.integers(0, 1000), st.sampled_from([torch.float32, torch.float64]))
def test_the_multiplier_meets_its_allowance(share: float, seed: int, dtype: torch.dtype) -> None:
    drawn = torch.Generator().manual_seed(seed)
    ratios = torch.rand(1, 4, 5, generator=drawn, dtype=dtype).pow(4) * 100
    squares = torch.rand(1, 4, 5, generator=drawn, dtype=dtype)
    allowance = share * float((ratios * squares).sum())
    m = smallest_multiplier(ratios, squares, allowance)
    left = float((ratios * squares / (1 + m * ratios).square()).sum())
    assert left <= allowance * (1 + 1e-6)
    if m > 0:
        assert left >= allowance * (1 - 1e-4)  # and not more is removed than need be


def test_an_endless_penalty_is_the_projection_onto_what_old_data_never_used() -> None:
    torch.manual_seed(0)
    found = factors(3, 6, rank=2)
    assert found.inputs is not None
    assert found.inputs.shape[-1] == 2
    D = torch.randn(1, 3, 6, dtype=torch.float64)
    U = found.inputs[0]
    truth = D - D @ U @ U.mT
    found.shrink_(D, Penalty(1e300).multiplier, rate=1.0, allowance=0.0)
    assert torch.allclose(D, truth, atol=1e-12)


def test_no_penalty_changes_no_bit() -> None:
    found = factors(3, 4)
    D = torch.randn(1, 3, 4, dtype=torch.float64)
    before = D.clone()
    found.shrink_(D, Penalty(1e-300).multiplier, rate=1e-3, allowance=0.0)
    assert torch.equal(D, before)


def test_free_dimensions_are_counted_over_the_whole_matrix() -> None:
    found = factors(3, 6, rank=2)
    r = torch.zeros(3, 6, dtype=torch.float64)
    r[:, 4:] = found.ratios[0]
    assert found.effective_free(3, 6) == pytest.approx(float((1 / (1 + r)).sum()))
    alone = Kronecker(found.inputs, found.energies, None, None)
    assert alone.effective_free(3, 6) == pytest.approx(
        3 * (4 + float((1 / (1 + found.energies)).sum()))
    )


def test_groups_are_shrunk_each_by_its_own_factors() -> None:
    one, two = factors(2, 3), factors(2, 3)
    assert one.inputs is not None
    assert two.inputs is not None
    assert one.outputs is not None
    assert two.outputs is not None
    both = Kronecker(*(torch.cat([getattr(f, n) for f in (one, two)]) for n in vars(one)))
    D = torch.randn(2, 2, 3, dtype=torch.float64)
    parts = [D[:1].clone(), D[1:].clone()]
    for found, part in zip((one, two), parts, strict=True):
        found.shrink_(part, Penalty(1.0).multiplier, rate=1.0, allowance=0.0)
    both.shrink_(D, Penalty(1.0).multiplier, rate=1.0, allowance=0.0)
    assert torch.allclose(D, torch.cat(parts))


def test_tokens_are_held_by_how_often_they_were_seen() -> None:
    counts = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64)
    found = make_token_kronecker(counts, eigenpairs(second_moments(2)), tasks=1)
    D = torch.ones(1, 2, 3, dtype=torch.float64)
    found.shrink_(D, Penalty(1.0).multiplier, rate=1.0, allowance=0.0)
    sizes = D[0].norm(dim=0)
    assert sizes[0] == pytest.approx(2**0.5)  # never seen: free
    assert sizes[0] > sizes[1] > sizes[2]


def test_a_diagonal_is_shrunk_number_by_number() -> None:
    found = make_diagonal(torch.tensor([0.0, 2.0, 4.0], dtype=torch.float64), tasks=2)
    assert torch.equal(found.ratios, torch.tensor([0.0, 2.0, 4.0], dtype=torch.float64))
    D = torch.ones(3, dtype=torch.float64)
    found.shrink_(D, Penalty(1.0).multiplier, rate=1.0, allowance=0.0)
    assert torch.allclose(D, torch.tensor([1.0, 1 / 3, 1 / 5], dtype=torch.float64))
    assert Diagonal(found.ratios).nbytes == 24
