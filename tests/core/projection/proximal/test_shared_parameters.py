"""A parameter of several blocks: the step of their sum, against dense systems and a solver."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

import nscl
from nscl.core.covariance.packed import unpack
from nscl.core.projection.proximal import shared_parameters
from nscl.core.projection.proximal.shared_parameters import sharing_groups
from nscl.core.projection.proximal.updates import ElementwiseUpdate
from tests.core.model.tying import Tied

RATE = 0.02


def tied(
    rule: Any, optimizer: type[torch.optim.Optimizer], lr: float, **options: Any
) -> tuple[Any, torch.optim.Optimizer, nscl.Memory]:
    model = Tied().double()
    memory = nscl.Memory(model, rule=rule, every=1, **options)
    made = optimizer(model.parameters(), lr=lr)
    memory.protect(made)
    memory.remember([torch.randint(0, 6, (20, 3))], likelihood="categorical")
    return model, made, memory


def means(matrix: Tensor) -> Tensor:
    return matrix / matrix.diagonal().mean()


def costs(memory: nscl.Memory, weight: Tensor, bias: Tensor) -> list[Tensor]:
    """``tr(G̃ D C̃ Dᵀ)`` of the embedding and of the output layer, from what is saved."""
    kept = memory.state_dict()["tensors"]
    tokens = means(kept["covariance/embed"].diag())
    embedded = means(unpack(kept["gradient/embed"])[0])
    C, G = (means(unpack(kept[f"{kind}/out"])[0]) for kind in ("covariance", "gradient"))
    both = torch.cat([weight, bias[:, None]], 1)
    return [(embedded @ weight.T @ tokens @ weight).trace(), (G @ both @ C @ both.T).trace()]


def flat(model: Any) -> Tensor:
    return torch.cat([model.embed.weight.detach().flatten(), model.out.bias.detach()])


def forms(memory: nscl.Memory) -> list[Tensor]:
    """Matrices H of the costs ``xᵀHx`` of weight and bias in one vector."""
    zeros = torch.zeros(35, dtype=torch.float64)
    hessians = [
        torch.autograd.functional.hessian(
            lambda x, i=i: costs(memory, x[:28].view(7, 4), x[28:])[i], zeros
        )
        for i in range(2)
    ]
    return [hessian / 2 for hessian in hessians]


def step(model: nn.Module, optimizer: torch.optim.Optimizer, ids: Tensor) -> None:
    optimizer.zero_grad()
    model(ids).square().sum().backward()
    optimizer.step()


def one_step(rule: Any) -> tuple[nscl.Memory, tuple[Tensor, Tensor, Tensor]]:
    """Where it was, where a step alone would lead, and where the protected one does."""
    model, optimizer, memory = tied(rule, torch.optim.SGD, RATE)
    plain, before = copy.deepcopy(model), flat(model)
    ids = torch.randint(0, 7, (9, 3))
    step(model, optimizer, ids)
    step(plain, torch.optim.SGD(plain.parameters(), RATE), ids)
    return memory, (before, flat(plain), flat(model))


@pytest.mark.parametrize("strength", [0.3, 5.0, 50.0])
def test_a_tied_weight_takes_the_step_of_the_sum(strength: float) -> None:
    torch.manual_seed(0)
    memory, (before, alone, ours) = one_step(nscl.Penalty(strength))
    system = torch.eye(35, dtype=torch.float64) + strength * RATE * sum(forms(memory))
    truth = torch.linalg.solve(system, alone - before)
    assert torch.allclose(ours - before, truth, atol=1e-7 * float(truth.norm()))
    single = torch.eye(35, dtype=torch.float64) + strength * RATE * forms(memory)[1]
    assert not torch.allclose(torch.linalg.solve(single, alone - before), truth, rtol=0.05)


def test_a_tied_weight_is_projected_onto_both_budgets() -> None:
    torch.manual_seed(0)
    memory, values = one_step(nscl.Budget(1e-3))
    H = [form.numpy() for form in forms(memory)]
    before, alone, ours = (value.numpy() for value in values)
    energies = [before @ H[0] @ before, before @ H[1] @ before]
    found, given = ours - before, alone - before
    shares = [found @ h @ found / (1e-3 * e) for h, e in zip(H, energies, strict=True)]
    assert max(shares) == pytest.approx(1.0, rel=1e-6)
    assert max(shares) <= 1.0 + 1e-9
    limits = [
        {
            "type": "ineq",
            "fun": lambda x, h=h, e=e: 1 - x @ h @ x / (1e-3 * e),
            "jac": lambda x, h=h, e=e: -2 * h @ x / (1e-3 * e),
        }
        for h, e in zip(H, energies, strict=True)
    ]
    solved = minimize(
        lambda x: ((x - given) ** 2).sum(),
        found * 0.5,
        jac=lambda x: 2 * (x - given),
        constraints=limits,
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-15},
    )
    assert ((found - given) ** 2).sum() <= solved.fun * (1 + 1e-6)
    assert np.allclose(solved.x, found, atol=1e-3 * np.abs(found).max())


@pytest.mark.parametrize("rounds", [1, 100])
@pytest.mark.parametrize("factors", ["kronecker", "input"])
def test_no_budget_of_a_tied_weight_is_exceeded(
    factors: Any, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where rounds end too early."""
    monkeypatch.setattr(shared_parameters, "ROUNDS", rounds)
    torch.manual_seed(0)
    model, optimizer, memory = tied(nscl.Budget(0.01), torch.optim.Adam, 0.05, factors=factors)
    for _ in range(5):
        for _ in range(3):
            step(model, optimizer, torch.randint(0, 7, (9, 3)))
        for layer in memory.forgetting().layers:
            share = layer.relative if factors == "input" else layer.weighed
            assert share is not None
            assert share <= 0.01 * (1 + 1e-9)
    assert memory.forgetting().total.relative > 1e-4


class Updating(ElementwiseUpdate):
    """Of any parameters, by name."""

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)

    @property
    def parameters(self) -> tuple[str, ...]:
        return self.names  # type: ignore[attr-defined]


def test_groups_are_joined_through_others() -> None:
    a, b, c, d, e = (Updating(*names) for names in ("uv", "w", "x", "wv", "y"))
    groups = sharing_groups([a, b, c, d, e])
    assert [{id(u) for u in group} for group in groups] == [{id(a), id(b), id(d)}, {id(c)}, {id(e)}]
