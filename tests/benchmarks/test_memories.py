"""Memories put together are what ``remember`` would have left, but for the numbers."""

from typing import Any, Literal

import pytest
import torch
from benchmarks.memories import as_it_comes, filled, papers, papers_displaced, proximal
from torch.optim import SGD

import nscl
from benchmarks import memories, network
from nscl.core.projection.kronecker import Kronecker

pytestmark = pytest.mark.usefixtures("tiny")

WEIGHT = "backbone.blocks.7.conv2.weight"


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """With which options memories are made."""
    given_options: list[dict[str, object]] = []

    def spy(model: torch.nn.Module, **given: Any) -> nscl.Memory:
        given_options.append(given)
        return nscl.Memory(model, **given)

    monkeypatch.setattr(memories, "Memory", spy)
    return given_options


def train(memory: nscl.Memory, steps: int) -> None:
    optimizer = SGD(memory.model.parameters(), lr=1e-2)
    with memory.protect(optimizer):
        for _ in range(steps):
            optimizer.zero_grad()
            memory.model(network.batch().images, 0).square().sum().backward()
            optimizer.step()


def displacement(memory: nscl.Memory) -> torch.Tensor:
    before = network.network().get_parameter(WEIGHT)
    return (memory.model.get_parameter(WEIGHT) - before).detach().flatten(1)


@pytest.mark.parametrize("every", [None, 1, 2])
def test_the_papers_rule_holds_the_first_feature(every: int | None) -> None:
    model = network.network()
    memory = papers(model, tasks=1) if every is None else papers_displaced(model, every=every)
    train(memory, 2)
    moved = displacement(memory)
    assert moved[:, 0].abs().max() < 1e-7 < moved[:, 1:].abs().max()
    assert (memory.rule, memory.every) == (nscl.Ratio(10.0), every or 1)
    assert memory.acts_on == ("step" if every is None else "displacement")


def test_later_tasks_take_no_more_room() -> None:
    first, later = (papers(network.network(), tasks=tasks) for tasks in (1, 25))
    assert first.nbytes == later.nbytes
    assert (first.tasks, later.tasks) == (1, 25)
    name = "backbone.bn.weight"
    ratio = later._state.anchors[name].fisher / first._state.anchors[name].fisher
    assert torch.allclose(ratio, torch.full_like(ratio, 25.0))


@pytest.mark.parametrize("factors", ["kronecker", "input"])
def test_as_much_is_kept_as_of_real_data(factors: Literal["kronecker", "input"]) -> None:
    made = proximal(network.network(), factors)
    real = nscl.Memory(network.network(), rule=nscl.Penalty(), factors=factors)
    real.protect(optimizer := SGD(real.model.parameters(), lr=1e-2))
    real.remember([network.batch().images], forward=network.forward)
    assert optimizer.param_groups
    mine, theirs = dict(made.nbytes), dict(real.nbytes)
    assert mine.pop("projections") >= theirs.pop("projections")  # of which some are not used
    assert mine == theirs
    assert made._state.blocks.keys() == real._state.blocks.keys()


@pytest.mark.parametrize("factors", ["kronecker", "input"])
def test_a_proximal_one_shrinks_along_its_bases(factors: Literal["kronecker", "input"]) -> None:
    memory, free = proximal(network.network(), factors), network.network()
    held = memory._state.projections[WEIGHT.removesuffix(".weight")]
    assert isinstance(held, Kronecker)
    assert memory.every > 1
    train(memory, memory.every)
    unguarded = filled(nscl.Memory(free, rule=nscl.Penalty(1e-12), factors=factors))
    train(unguarded, memory.every)
    far, near = displacement(unguarded), displacement(memory)
    assert 0 < held.cost(near[None]) < held.cost(far[None])


@pytest.mark.parametrize("size", [1, 2, 9])
def test_bases_are_orthonormal(size: int) -> None:
    basis = memories._basis(size)
    assert torch.allclose(basis[0].T @ basis[0], torch.eye(size), atol=1e-6)
    assert memories._falling(size).mean() == pytest.approx(1.0)


def test_as_it_comes_is_without_options(options: list[dict[str, object]]) -> None:
    memory = as_it_comes(network.network())
    assert options == [{}]
    assert memory.options() == nscl.Memory(network.network()).options()
    assert memory.tasks == 1


def test_nothing_is_made_up_for_a_soft_projector() -> None:
    with pytest.raises(TypeError, match="Ridge"):
        filled(nscl.Memory(network.network(), rule=nscl.Ridge()))
