"""Steps that ``every`` leaves waiting, at the moments at which they could be forgotten."""

import copy
import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import nscl

OLD, NEW = torch.randn(40, 4).double(), torch.randn(40, 4).double()
LABELS = torch.randint(0, 3, (40,))


def protected(every: int = 100) -> tuple[nn.Module, nscl.Memory, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    memory = nscl.Memory(model, rule=nscl.Penalty(1e6), every=every)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    memory.protect(optimizer)
    memory.remember([OLD])
    return model, memory, optimizer


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(NEW), LABELS).backward()
        optimizer.step()


def test_a_memory_that_goes_before_its_last_steps_are_treated_warns() -> None:
    model, memory, optimizer = protected()
    train(model, optimizer, 7)
    del memory, optimizer
    with pytest.warns(nscl.NsclWarning, match="the last 7 optimizer steps were not treated"):
        gc.collect()


@pytest.mark.parametrize("treat", [lambda memory, _: memory.flush(), lambda _, m: m.append(1)])
def test_there_is_no_warning_once_they_are_treated_or_the_model_has_gone_too(
    treat: Callable[[nscl.Memory, list[Any]], object],
) -> None:
    model, memory, optimizer = protected()
    train(model, optimizer, 7)
    gone: list[Any] = []
    treat(memory, gone)
    kept = None if gone else model
    del memory, optimizer, model
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()
    del kept


def load(memory: nscl.Memory) -> None:
    memory.load_state_dict(copy.deepcopy(memory.state_dict(flush=False)))


@pytest.mark.parametrize("look", [lambda memory: memory.forget(["0"]), load])
def test_what_replaces_the_state_treats_them_first(look: Callable[[nscl.Memory], None]) -> None:
    model, memory, optimizer = protected()
    train(model, optimizer, 3)
    moved = model[0].weight.detach().clone()
    look(memory)
    assert not torch.equal(model[0].weight, moved)


@pytest.mark.parametrize("every", [1, 3])
def test_a_step_that_gradient_scaling_skips_neither_moves_nor_counts(every: int) -> None:
    """Infinite gradients at the second of five steps: the same as four steps without it."""
    ends = []
    for skipped in (True, False):
        model, memory, optimizer = protected(every)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1000)
        for i in range(5):
            if i == 1 and not skipped:
                continue
            optimizer.zero_grad()
            loss = F.cross_entropy(model(NEW), LABELS)
            scaler.scale(loss * (torch.inf if i == 1 else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()
        memory.flush()
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.allclose(*ends, rtol=1e-12)
