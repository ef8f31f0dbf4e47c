"""A whole step of InstAParam against the same written down slowly, in float64."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nscl.methods.base import Batch, Phase
from nscl.methods.instaparam.method import InstAParam
from nscl.methods.regularization.penalty import shared_parameters
from nscl.training.config.schema import Optim
from nscl.training.optimizers import set_rates
from nscl.training.setup import Setup
from tests.methods.instaparam.slow_instaparam import (
    exact,
    slow_fisher,
    slow_reinforce,
    slow_relaxed,
)
from tests.methods.setups import batch_of, frozen, train

Truth = Callable[[InstAParam, Batch, Tensor], tuple[Tensor, Tensor]]
RATE = 0.1  # of the network's SGD
EWC = 5.0


def in_second_task(tmp_path: Path, **options: Any) -> tuple[Setup, InstAParam, dict[str, Tensor]]:
    """The first task has ended where weights were a little other; returns those as well."""
    torch.manual_seed(0)
    setup, method = exact(tmp_path, ewc=EWC, **options)
    method.end_task(0)
    assert len(method.counts.unique()) > 1  # branches differ in how often they served
    centre = frozen(dict(method.model.named_parameters()))
    with torch.no_grad():
        for parameter in shared_parameters(method.lab).values():
            parameter += 0.05 * torch.randn_like(parameter)
    return setup, method, centre


def taken(method: InstAParam, batch: Batch, seed: int) -> None:
    """One step as the loop makes it."""
    phase = method.phases(batch.task)[-1]
    optimizer = method.optimizer(batch.task, phase)
    optimizer.zero_grad()
    torch.manual_seed(seed)
    method.loss(batch, phase).loss.backward()
    method.after_backward(batch, phase)
    optimizer.step()
    method.after_step(batch, phase)


def expected(
    method: InstAParam, batch: Batch, truth: Truth, centre: dict[str, Tensor], seed: int
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Weights of the network after the step, and the controller's gradients before it."""
    torch.manual_seed(seed)
    draws = torch.rand(len(batch.labels), *method.net.choices)
    loss, lesson = truth(method, batch, draws)
    network = dict(method.model.named_parameters())
    found = torch.autograd.grad(loss, list(network.values()), allow_unused=True, retain_graph=True)
    after = {}
    for (name, weight), gradient in zip(network.items(), found, strict=True):
        step = torch.zeros_like(weight) if gradient is None else gradient
        if name in method.penalty.importance:
            step = step + EWC * method.penalty.importance[name] * (weight - centre[name])
        after[name] = weight.detach() - RATE * step
    controller = list(method.controller.parameters())
    return after, list(torch.autograd.grad(lesson, controller))


def check_step(
    tmp_path: Path, truth: Truth, *, scenario: str = "task", **options: Any
) -> InstAParam:
    setup, method, centre = in_second_task(tmp_path, scenario=scenario, **options)
    batch = batch_of(setup, 1, size=12)
    after, lesson = expected(method, batch, truth, centre, seed=3)
    pupil = copy.deepcopy(method.controller)
    taken(method, batch, seed=3)
    for name, weight in method.model.named_parameters():
        assert torch.allclose(weight, after[name], atol=1e-9), name
    adam = torch.optim.Adam(pupil.parameters(), lr=1e-3)
    for mine, theirs, gradient in zip(
        method.controller.parameters(), pupil.parameters(), lesson, strict=True
    ):
        assert mine.grad is not None
        assert torch.allclose(mine.grad, gradient, rtol=1e-5, atol=1e-6)
        theirs.grad = mine.grad.clone()  # Adam's first step sees little but the sign
    adam.step()
    for name, weight in pupil.state_dict().items():
        assert torch.equal(method.controller.state_dict()[name], weight), name
    return method


@pytest.mark.parametrize("scenario", ["task", "domain"])
def test_a_step_is_self_critical_reinforce_and_a_held_network(
    scenario: str, tmp_path: Path
) -> None:
    method = check_step(tmp_path, slow_reinforce, scenario=scenario)
    held = {name.split(".")[0] for name in method.penalty.importance}
    assert held == ({"backbone", "shared_head"} if scenario == "domain" else {"backbone"})


def test_a_step_straight_through(tmp_path: Path) -> None:
    """The beginning of a phase, where the temperature is 1."""

    def truth(method: InstAParam, batch: Batch, draws: Tensor) -> tuple[Tensor, Tensor]:
        return slow_relaxed(method, batch, draws, 1.0)

    check_step(tmp_path, truth, estimator="gumbel")


def test_the_temperature_falls_with_the_phase(tmp_path: Path) -> None:
    setup, method, _ = in_second_task(tmp_path, estimator="gumbel", regime="online")
    phase, batch = method.phases(1)[0], batch_of(setup, 1)
    method.optimizer(1, phase)
    assert method._length == 10 * len(
        setup.loaders(setup.stream[1].train, purpose=0, batch_size=10)
    )
    found = []
    for done in (0, method._length // 2, method._length):
        method._done = done
        method.loss(batch, phase)
        found.append(method.metrics()["temperature"])
    assert found == pytest.approx([1.0, 0.75, 0.5], abs=0.01)


def test_every_task_but_the_last_adds_its_own_penalty(tmp_path: Path) -> None:
    setup, method = exact(tmp_path, ewc=EWC)
    method.end_task(0)
    first, start = frozen(method.penalty.importance), frozen(method.penalty.centre)
    train(setup, 1, Phase())
    method.end_task(1)
    both = frozen(method.penalty.importance)
    train(setup, 2, Phase())
    method.end_task(2)
    for name, weight in shared_parameters(method.lab).items():
        assert torch.equal(method.penalty.importance[name], both[name])
        assert not torch.equal(method.penalty.centre[name], weight)
        assert (both[name] >= first[name]).all()
        untouched = both[name] == first[name]
        assert torch.equal(method.penalty.centre[name][untouched], start[name][untouched])
    assert sum(float((both[name] - first[name]).sum()) for name in both) > 0
    assert set(method.snapshots) == {0, 1, 2}


def gradients(method: InstAParam) -> Tensor:
    found = (p.grad for p in shared_parameters(method.lab).values())
    return torch.cat([gradient.flatten().clone() for gradient in found if gradient is not None])


def test_online_the_weights_are_held_after_each_batch(tmp_path: Path) -> None:
    setup, method = exact(tmp_path, ewc=EWC, regime="online")
    phase = method.phases(0)[0]
    optimizer = method.optimizer(0, phase)
    total: dict[str, Tensor] = {}
    for draw in range(2):
        batch = batch_of(setup, 0, size=10, draw=draw)
        for _ in range(phase.repeats):
            assert bool(method.penalty.importance) == (draw > 0)
            optimizer.zero_grad()
            method.loss(batch, phase).loss.backward()
            plain = gradients(method)
            method.after_backward(batch, phase)
            assert torch.equal(gradients(method), plain)  # the first task is not held by itself
            optimizer.step()
            method.after_step(batch, phase)
        names = list(method.penalty.importance)
        for name, new in slow_fisher(method, [(batch.images, batch.labels)], 0, names).items():
            total[name] = total.get(name, torch.zeros_like(new)) + new
    for name, weight in shared_parameters(method.lab).items():
        assert torch.allclose(method.penalty.importance[name], total[name], rtol=1e-8, atol=1e-14)
        assert torch.equal(method.penalty.centre[name], weight.detach())
    assert "pull" not in method.metrics()
    method.end_task(0)
    assert all(torch.allclose(method.penalty.importance[n], total[n], rtol=1e-8) for n in total)
    train(setup, 1, method.phases(1)[0])
    assert method.metrics()["pull"] > 0


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_the_controllers_rate_is_its_own(name: str, tmp_path: Path) -> None:
    """Neither the run's optimizer nor its milestones change it."""
    setup, method = exact(tmp_path)
    method.lab.make_optimizer = lambda groups: (
        torch.optim.SGD if name == "sgd" else torch.optim.Adam
    )(groups, lr=1.0)
    phase, batch = method.phases(0)[0], batch_of(setup, 0)
    optimizer = method.optimizer(0, phase)
    listed = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert not listed & {id(p) for p in method.controller.parameters()}
    set_rates(optimizer, Optim(milestones=(0,), gamma=0.01), 0, 2)
    before = method.controller.choose.bias.detach().clone()
    method.loss(batch, phase).loss.backward()
    method.after_step(batch, phase)
    moved = (method.controller.choose.bias.detach() - before).abs()
    assert torch.allclose(moved, torch.full_like(moved, 1e-3), rtol=1e-3)


def test_pre_training_leaves_the_controller_alone(tmp_path: Path) -> None:
    setup, method = exact(tmp_path, pretrain_epochs=1, ewc=EWC, regime="online")
    first, _ = method.phases(0)
    before = frozen(method.controller.state_dict())
    train(setup, 0, first, steps=2)
    after = method.controller.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not method.penalty.importance
