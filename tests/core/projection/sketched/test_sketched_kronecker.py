"""The four blocks against the dense Kronecker step, in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nscl.core.projection.kronecker import make_kronecker
from nscl.core.projection.rules import Budget, Penalty
from nscl.core.projection.sketched.sketched_kronecker import (
    SketchedKronecker,
    make_sketched_kronecker,
)

Side = tuple[Tensor, Tensor]  # all eigenvalues, ascending; vectors of the last of them


def side(width: int, known: int, *, rest: float = 0.3, groups: int = 1) -> Side:
    vectors = torch.linalg.qr(torch.randn(groups, width, known, dtype=torch.float64))[0]
    values = torch.full((groups, width), rest, dtype=torch.float64)
    values[:, width - known :] = 1.0 + 3.0 * torch.rand(groups, known).double().sort(-1).values
    return values, vectors


def written_out(found: Side) -> Tensor:
    """``U diag(c) Uᵀ + c₀(I − UUᵀ)``, divided by its mean eigenvalue."""
    values, U = found
    known = values[:, values.shape[-1] - U.shape[-1] :]
    eye = torch.eye(U.shape[-2], dtype=U.dtype)
    C = (U * known[:, None]) @ U.mT + values[:, 0, None, None] * (eye - U @ U.mT)
    return C / values.mean()


def sketched(inputs: Side, outputs: Side | None, *, tasks: int = 1) -> SketchedKronecker:
    floor = torch.full_like(inputs[0], 1e-12)
    return make_sketched_kronecker((inputs[0], floor, inputs[1]), outputs, tasks=tasks)


def dense_step(C: Tensor, G: Tensor, D: Tensor, m: float) -> Tensor:
    """``argmin ½‖X − D‖² + m/2·tr(G X C Xᵀ)`` by solving one system per group."""
    found = []
    for c, g, d in zip(C, G, D, strict=True):
        system = torch.eye(d.numel(), dtype=d.dtype) + m * torch.kron(g, c)
        found.append(torch.linalg.solve(system, d.flatten()).view_as(d))
    return torch.stack(found)


CASES = {"both": (5, 2), "inputs only": (5, 5), "outputs alike": (5, None), "none known": (5, 0)}


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(CASES)), st.integers(0, 6), st.floats(1e-2, 1e2), st.integers(1, 3))
def test_the_step_is_that_of_the_dense_factors(
    case: str, known: int, strength: float, tasks: int
) -> None:
    torch.manual_seed(known)
    out, p = CASES[case]
    inputs = side(6, known, groups=2)
    outputs = None if p is None else side(out, p, groups=2)
    C = tasks * written_out(inputs)
    G = torch.eye(out).double().expand(2, -1, -1) if outputs is None else written_out(outputs)
    D = torch.randn(2, out, 6, dtype=torch.float64)
    found = sketched(inputs, outputs, tasks=tasks)
    cost = float((G @ D @ C * D).sum())
    assert found.cost(D) == pytest.approx(cost, rel=1e-9)
    free = sum(
        float((1.0 / (1.0 + torch.linalg.eigvalsh(torch.kron(g, c)))).sum())
        for g, c in zip(G, C, strict=True)
    )
    assert found.effective_free(out, 6) == pytest.approx(free, rel=1e-9)
    truth = dense_step(C, G, D, strength * 0.5)
    found.shrink_(D, Penalty(strength).multiplier, rate=0.5, allowance=0.0)
    assert torch.allclose(D, truth, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("share", [0.5, 1e-2, 1e-6])
def test_a_budget_counts_what_is_not_known_too(share: float) -> None:
    torch.manual_seed(0)
    inputs, outputs = side(8, 3), side(6, 2)
    found, D = sketched(inputs, outputs), torch.randn(1, 6, 8, dtype=torch.float64)
    (c, U), G = torch.linalg.eigh(written_out(inputs)), torch.linalg.eigh(written_out(outputs))
    full = make_kronecker((c, torch.zeros_like(c), U), (G[0], G[1]), tasks=1)
    allowance, dense = share * full.cost(D), D.clone()
    full.shrink_(dense, Budget().multiplier, rate=0.0, allowance=allowance)
    found.shrink_(D, Budget().multiplier, rate=0.0, allowance=allowance)
    assert torch.allclose(D, dense, rtol=1e-8, atol=1e-10)
    assert found.cost(D) == pytest.approx(allowance, rel=1e-9)


def test_tokens_have_a_direction_each() -> None:
    torch.manual_seed(0)
    counts, outputs = torch.tensor([[0.0, 0.2, 0.8, 0.0]]).double(), side(5, 2)
    found = make_sketched_kronecker((counts, torch.zeros(1, 1), None), outputs, tasks=1)
    D, C = torch.randn(1, 5, 4, dtype=torch.float64), torch.diag_embed(counts / counts.mean())
    assert found.cost(D) == pytest.approx(float((written_out(outputs) @ D @ C * D).sum()))
    truth = dense_step(C, written_out(outputs), D, 2.0)
    unseen = D[..., [0, 3]].clone()
    found.shrink_(D, Penalty(2.0).multiplier, rate=1.0, allowance=0.0)
    assert torch.allclose(D, truth, rtol=1e-9)
    assert torch.equal(D[..., [0, 3]], unseen)


def test_what_was_never_used_stays_to_the_bit() -> None:
    torch.manual_seed(0)
    values, vectors = side(6, 2, rest=0.0)
    found = sketched((values, vectors), side(4, 2)).to(
        device=torch.device("cpu"), dtype=torch.float32
    )
    assert isinstance(found, SketchedKronecker)
    assert float(found.rest) == 0.0
    inside = torch.randn(1, 4, 6) @ (torch.eye(6) - vectors @ vectors.mT).float()
    before = inside.clone()
    found.shrink_(inside, Penalty(1e6).multiplier, rate=1.0, allowance=0.0)
    assert torch.allclose(inside, before, atol=1e-6)
    assert found.nbytes < 4 * (6 * 6 + 4 * 4)
    assert float(found.scaled(2.0).energies.sum()) == pytest.approx(2 * float(found.energies.sum()))
