"""Step hooks on an optimizer: any optimizer, any loop, on and off without a trace."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim import lr_scheduler as schedules

import nscl
from tests.core.protected_scene import (
    EXACT,
    dense_projectors,
    furthest,
    mlp,
    project_by_hand,
    protected_scene,
    stacked,
    values,
)

Loop = Callable[[nn.Sequential, Optimizer, Callable[[], None]], None]


def in_groups(model: nn.Sequential) -> list[dict[str, Any]]:
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    weights = [p for name, p in model.named_parameters() if name.endswith("weight")]
    return [{"params": weights, "lr": 0.02}, {"params": biases, "weight_decay": 0.5}]


def adam(model: nn.Sequential, **options: Any) -> Optimizer:
    return torch.optim.Adam(model.parameters(), 1e-2, weight_decay=1e-2, **options)


OPTIMIZERS: dict[str, Callable[[nn.Sequential], Optimizer]] = {
    "groups": lambda m: torch.optim.SGD(in_groups(m), 0.05, momentum=0.9, nesterov=True),
    "groups of adamw": lambda m: torch.optim.AdamW(in_groups(m), 1e-2),
    "adam": adam,
    "foreach": lambda m: adam(m, foreach=True),
    "fused": lambda m: adam(m, fused=True),
    "maximize": lambda m: torch.optim.SGD(m.parameters(), 0.05, maximize=True),
}


def loss_of(model: nn.Module, seed: int) -> Tensor:
    x = torch.randn(8, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return model(x).square().mean()


def plain(model: nn.Sequential, optimizer: Optimizer, step: Callable[[], None]) -> None:
    for i in range(5):
        optimizer.zero_grad()
        loss_of(model, i).backward()
        step()


def accumulating(model: nn.Sequential, optimizer: Optimizer, step: Callable[[], None]) -> None:
    for i in range(9):
        loss_of(model, i).backward()
        if i % 3 == 2:
            step()
            optimizer.zero_grad(set_to_none=False)


def one_cycle(model: nn.Sequential, optimizer: Optimizer, step: Callable[[], None]) -> None:
    schedule = schedules.OneCycleLR(optimizer, max_lr=0.1, total_steps=6)
    plain(model, optimizer, lambda: (step(), schedule.step()))


def chained(model: nn.Sequential, optimizer: Optimizer, step: Callable[[], None]) -> None:
    first = schedules.ExponentialLR(optimizer, 0.5)
    both = schedules.ChainedScheduler([first, schedules.StepLR(optimizer, 2)], optimizer)
    plain(model, optimizer, lambda: (step(), both.step()))


LOOPS: dict[str, Loop] = {f.__name__: f for f in (plain, accumulating, one_cycle, chained)}


@pytest.mark.parametrize(
    ("optimizer", "loop"),
    [*((name, "plain") for name in OPTIMIZERS), *(("groups", loop) for loop in list(LOOPS)[1:])],
)
def test_training_equals_projecting_every_step_by_hand(optimizer: str, loop: str) -> None:
    old, first = torch.randn(3, 6, dtype=torch.float64), mlp()
    second = copy.deepcopy(first)
    mine, theirs = OPTIMIZERS[optimizer](first), OPTIMIZERS[optimizer](second)
    memory = nscl.Memory(first, rule=EXACT)
    memory.protect(mine)
    memory.remember([old])
    projectors = dense_projectors(second, old)

    def by_hand() -> None:
        before = {layer: stacked(layer) for layer in projectors}
        theirs.step()
        project_by_hand(projectors, before)

    outputs, start = first(old).detach(), values(first)
    LOOPS[loop](first, mine, lambda: mine.step())  # looked up late: schedulers replace it
    LOOPS[loop](second, theirs, by_hand)
    assert furthest(values(first), values(second)) < 1e-10
    assert furthest(values(first), start) > 1e-3
    assert (first(old) - outputs).abs().max() < 1e-12


def test_a_closure_gives_its_loss_and_is_protected() -> None:
    scene = protected_scene()

    def closure() -> Tensor:
        scene.optimizer.zero_grad()
        loss = loss_of(scene.model, 0)
        loss.backward()
        return loss

    expected = loss_of(scene.model, 0).item()
    assert scene.optimizer.step(closure).item() == expected
    assert scene.optimizer.step(closure=closure).item() < expected
    assert scene.moved() < 1e-12


def test_parameters_that_come_later_are_free_until_remembered() -> None:
    scene = protected_scene()
    scene.model.append(nn.Linear(3, 2).double())
    head = scene.model[-1]
    scene.optimizer.add_param_group({"params": head.parameters(), "lr": 0.1})
    features = scene.model[:-1](scene.old).detach()
    before = head(features).detach()
    scene.train()
    assert (scene.model[:-1](scene.old) - features).abs().max() < 1e-12
    assert (head(features) - before).abs().max() > 1e-3
    scene.memory.remember([scene.old])
    before = scene.model(scene.old).detach()
    scene.train()
    assert (scene.model(scene.old) - before).abs().max() < 1e-12


def test_remembering_twice_in_a_row_never_leaves_an_old_plan() -> None:
    # States come and go, and Python gives their addresses away again.
    scene = protected_scene()
    for _ in range(60):
        state = scene.memory.state_dict()
        scene.train(1)
        scene.memory.remember([torch.randn(2, 6, dtype=torch.float64)])
        fresh = torch.randn(1, 6, dtype=torch.float64)
        scene.memory.remember([fresh])
        before = scene.model(fresh).detach()
        scene.train(1)
        assert (scene.model(fresh) - before).abs().max() < 1e-12
        scene.memory.load_state_dict(state)  # else nothing would be free soon


def test_as_a_context_it_ends_with_its_block() -> None:
    scene = protected_scene()
    with scene.protection as protection:
        scene.train()
        assert protection.active
        assert scene.moved() < 1e-12
    assert not scene.protection.active
    scene.train()
    assert scene.moved() > 1e-3


def test_loading_an_optimizers_state_keeps_the_protection() -> None:
    scene = protected_scene(lambda p: torch.optim.Adam(p, 1e-2))
    scene.train()
    scene.optimizer.load_state_dict(copy.deepcopy(scene.optimizer.state_dict()))
    assert scene.protection.active
    scene.train()
    assert scene.moved() < 1e-12
