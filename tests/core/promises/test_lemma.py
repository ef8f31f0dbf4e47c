"""Lemma 1 and Condition 2 of the paper, for random networks and every optimizer."""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import Optimizer

import nscl
from tests.networks import Case, cases

OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05, weight_decay=1e-2),
    "momentum": lambda p: torch.optim.SGD(p, 0.02, momentum=0.9, nesterov=True, weight_decay=1e-2),
    "adam": lambda p: torch.optim.Adam(p, 1e-2, weight_decay=1e-2),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-2, weight_decay=1e-1),
    "nadam": lambda p: torch.optim.NAdam(p, 1e-2, weight_decay=1e-2),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-3, weight_decay=1e-2),
    "adagrad": lambda p: torch.optim.Adagrad(p, 1e-2, weight_decay=1e-2),
}


def train(case: Case, optimizer: Optimizer, steps: int = 30) -> tuple[float, float]:
    x = case.new()
    labels = torch.arange(len(x)) % 3
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(case.model(x), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[0], losses[-1]


def moved(model: nn.Module, old: Tensor, before: Tensor) -> float:
    return (model(old) - before).abs().max().item()


@pytest.mark.parametrize("name", OPTIMIZERS)
@settings(max_examples=6, deadline=None)
@given(case=cases())
def test_old_outputs_stay_while_the_new_loss_falls(name: str, case: Case) -> None:
    check_lemma(case, OPTIMIZERS[name](case.model.parameters()))


def check_lemma(case: Case, optimizer: Optimizer) -> None:
    old = case.old()
    before = case.model(old).detach()
    memory = nscl.Memory(case.model, rule=nscl.Tolerance(1e-12))
    protection = memory.protect(optimizer)
    memory.remember([old])
    first, last = train(case, optimizer)
    assert moved(case.model, old, before) < 1e-9
    assert last < first
    assert memory.forgetting().total.drift < 1e-13
    protection.remove()
    train(case, optimizer)
    assert moved(case.model, old, before) > 1e-3


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 999), widths=st.lists(st.integers(8, 24), min_size=1, max_size=3))
def test_muon_too(seed: int, widths: list[int]) -> None:
    """It takes matrices only: no biases, no kernels."""
    torch.manual_seed(seed)
    layers = [nn.Linear(a, b, bias=False) for a, b in pairwise([16, *widths, 3])]
    parts = [part for layer in layers for part in (layer, nn.ReLU())][:-1]
    case = Case(nn.Sequential(*parts).double(), (16,))
    optimizer = torch.optim.Muon(case.model.parameters(), 1e-2, weight_decay=1e-1)
    check_lemma(case, optimizer)


@settings(max_examples=20, deadline=None)
@given(case=cases(), rule=st.sampled_from([nscl.Ratio(10.0), nscl.Energy(0.05), nscl.Ridge(1.0)]))
def test_the_projected_step_never_points_away_from_the_candidate(case: Case, rule: Any) -> None:
    """Condition 2: ⟨ΔW, g⟩ ≥ 0 with g the optimizer's own candidate."""
    memory = nscl.Memory(case.model, rule=rule)
    parameters = dict(case.model.named_parameters())
    optimizer = torch.optim.SGD(parameters.values(), 1.0)
    memory.protect(optimizer)
    memory.remember([case.old(rank=4)])
    case.model(case.new()).square().sum().backward()
    before = {name: p.detach().clone() for name, p in parameters.items()}
    optimizer.step()
    inner = sum(
        float(((before[name] - p.detach()) * p.grad).sum())
        for name, p in parameters.items()
        if p.grad is not None
    )
    assert inner >= -1e-12
