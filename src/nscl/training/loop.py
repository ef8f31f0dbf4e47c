"""The one training loop: an epoch of any phase of any method."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

from nscl.data.batches import Batches
from nscl.errors import NsclError
from nscl.methods.base import Batch, Method, Phase
from nscl.training.display.tally import Tally
from nscl.training.process.device import Ranks


class DivergedError(NsclError):
    """The loss is not finite any more."""


@dataclass
class EpochLoop:
    """Runs steps, from any step on, until the epoch ends or a stop is asked for."""

    method: Method
    optimizer: Optimizer
    task: int
    phase: Phase
    ranks: Ranks
    precision: str
    stop: Callable[[], bool]
    each_step: Callable[[Tally], None] = lambda tally: None

    def run(self, batches: Batches, *, done: int = 0, tally: Tally | None = None) -> Tally:
        """Make all steps but the first ``done``, whose data are drawn and skipped."""
        tally = tally or Tally()
        rng = torch.get_rng_state() if done else None
        for number, (inputs, labels) in enumerate(batches):
            if number < done:
                continue
            if rng is not None:
                torch.set_rng_state(rng)
                rng = None
            batch = Batch(inputs, labels, self.task)
            for _ in range(self.phase.repeats):
                self._step(batch, tally)
            tally.steps = number + 1
            self.each_step(tally)
            if self.stop():
                break
        return tally

    def _step(self, batch: Batch, tally: Tally) -> None:
        self.optimizer.zero_grad()
        with self._autocast(batch):
            outcome = self.method.loss(batch, self.phase)
        value = float(outcome.loss.detach())
        if not torch.isfinite(outcome.loss.detach()):
            raise DivergedError(
                f"the loss became {value} in task {self.task + 1}, phase '{self.phase.name}', step "
                f"{tally.steps + 1}: lower the learning rate or the method's strength; the last "
                "checkpoint is intact"
            )
        outcome.loss.backward()
        self._share_gradients(len(batch.labels))
        self.method.after_backward(batch, self.phase)
        self.optimizer.step()
        self.method.after_step(batch, self.phase)
        self.ranks.share_buffers(self.method.learners())
        tally.loss += value * len(batch.labels)
        tally.hits += int((outcome.logits.detach().argmax(1) == outcome.labels).sum())
        tally.seen += len(batch.labels)

    def _autocast(self, batch: Batch) -> Any:
        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(batch.labels.device.type, torch.bfloat16)

    def _share_gradients(self, samples: int) -> None:
        if self.ranks.count > 1:
            total = float(self.ranks.sum(torch.tensor([float(samples)]))[0])
            parameters = (p for g in self.optimizer.param_groups for p in g["params"])
            self.ranks.average_gradients(parameters, samples / total)
