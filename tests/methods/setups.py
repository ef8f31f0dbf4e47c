"""Methods ready to be asked, without a run around them."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nscl.methods.base import Batch, Method, Phase
from nscl.training.process.device import Ranks
from nscl.training.setup import Setup
from tests.runs import small


def made(method: str, tmp_path: Path, **given: Any) -> Setup:
    """Everything a run of the digits would begin with; nothing is written."""
    return Setup.build(small(method, tmp_path, **given), Ranks())


def batch_of(setup: Setup, task: int, size: int = 8, *, draw: int = 0) -> Batch:
    """Some images of a task, in the precision of the network."""
    setup.loaders.task = task
    loader = setup.loaders(setup.stream[task].train, purpose=draw, batch_size=size)
    images, labels = next(iter(loader))
    precision = next(setup.model.parameters()).dtype
    return Batch(images.to(precision), labels, task)


def train(setup: Setup, task: int, phase: Phase, steps: int = 3) -> None:
    """A few steps of a phase, as the loop makes them."""
    method: Method = setup.method
    optimizer = method.optimizer(task, phase)
    setup.model.train()
    for step in range(steps):
        batch = batch_of(setup, task, draw=step)
        optimizer.zero_grad()
        method.loss(batch, phase).loss.backward()
        method.after_backward(batch, phase)
        optimizer.step()
        method.after_step(batch, phase)


def frozen(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A copy to compare with later."""
    return {name: value.detach().clone() for name, value in state.items()}


def moved(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    """The names of what is not bit for bit as it was."""
    return {name for name, value in after.items() if not torch.equal(before[name], value)}
