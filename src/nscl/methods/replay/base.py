"""What methods with an episodic memory share: its samples, their gradients, its checkpoints.

The memory holds equally many samples per class, chosen at random when a task ends, with the same
budget for GEM, A-GEM and MEGA. It is passed through the network in float32 and, unless asked for,
without augmentation. Each sample goes through the head of its own task and a mixed batch's loss is
the mean over samples, not a mean of the tasks' means.

The memory passes before the current batch, as in the originals: with batch norm in train mode the
last pass has the largest share in the running statistics (docs/methods.md, "A-GEM").

All of these methods change the *gradient*. What they promise about old tasks' losses holds to first
order for plain SGD, without momentum or decay; under Adam they are heuristics (docs/methods.md,
"Numerical traps").
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.optim import Optimizer

from nscl.core.distributed.collectives import is_distributed, sum_over_ranks
from nscl.data.batches import as_fed
from nscl.data.inputs import Inputs
from nscl.data.stored.episodic import EpisodicMemory
from nscl.errors import NsclError
from nscl.methods.base import Batch, Lab, Method, Options, Outcome, Phase
from nscl.methods.external_images import prepared
from nscl.methods.old_heads import OldHeads
from nscl.methods.replay.flat_gradients import flattened, gradient_of, put_gradients
from nscl.methods.running_averages import RunningAverages
from nscl.models.norms import layers_with_statistics


class ReplayOptions(Options):
    """The budget, and switches in which later work differs from the original code."""

    per_class: PositiveInt = 25  # samples kept of every class
    # Memory passes normalise with their own batch and move the running statistics (original).
    memory_bn: Literal["train", "eval"] = "train"
    old_heads: bool = True  # old heads go on learning from the memory (original), or stand still
    augment: bool = False  # kept images pass as they are (original), or augmented like a batch


class Replay(Method, ABC):
    """A method that corrects each step's gradient with gradients of the episodic memory."""

    options_type = ReplayOptions
    scenarios = ("task", "domain", "class")

    def __init__(self, lab: Lab, options: ReplayOptions) -> None:
        super().__init__(lab, options)
        self.budget = options
        self.memory = EpisodicMemory(options.per_class)
        self.averages = RunningAverages()
        self._draws = torch.Generator()
        self._learned: list[nn.Parameter] = []
        self._heads: OldHeads | None = None
        self._task = 0  # the current one: as which one head for all tasks is asked
        self._statistics = list(layers_with_statistics(lab.model).values())
        self._check()

    def _check(self) -> None:
        """Refuse switches that would change nothing."""
        if self.budget.memory_bn == "eval" and not self._statistics:
            raise NsclError(
                "memory_bn=eval would change nothing: no layer of this network keeps running "
                "statistics; leave it at train"
            )
        if self.budget.augment and self.lab.stream.kind != "images":
            raise NsclError(
                f"augment=true is for pictures; {self.lab.stream.name} has {self.lab.stream.kind}: "
                "leave it at false"
            )
        if not self.budget.old_heads and self.lab.stream.scenario != "task":
            raise NsclError(
                "old_heads=false is for streams with a head per task; a "
                f"{self.lab.stream.scenario} stream has one head, which is never old: leave it "
                "at true"
            )

    @abstractmethod
    def recall(self) -> None:
        """Pass the memory and keep what ``corrected`` needs of it; the batch passes afterwards."""

    @abstractmethod
    def corrected(self, gradient: Tensor, batch: Batch) -> Tensor:
        """The gradient to step along; returning ``gradient`` itself leaves the step alone."""

    def start_task(self, task: int) -> None:
        """Begin the task's own draws, from the generator that the run seeds for this place."""
        self._draws.manual_seed(int(torch.randint(2**62, ())))
        self.averages = RunningAverages()

    def optimizer(self, task: int, phase: Phase) -> Optimizer:
        """The usual optimizer; what it moves is what gradients are taken of."""
        self._release()
        self._task = task
        if task and self.lab.stream.scenario == "task":
            self._heads = OldHeads(self.model, task, learn=self.budget.old_heads)
        optimizer = super().optimizer(task, phase)
        self._learned = [p for group in optimizer.param_groups for p in group["params"]]
        return optimizer

    def parameter_groups(self, task: int) -> list[dict[str, Any]]:
        """Old heads too, if they learn: without decay, and still in steps that leave g alone."""
        groups = super().parameter_groups(task)
        if self._heads is not None and self._heads.parameters:
            groups.append(self.lab.head_group(self._heads.parameters))
        return groups

    def loss(self, batch: Batch, phase: Phase) -> Outcome:
        """The usual loss, after the memory has passed."""
        if len(self.memory):
            self.recall()
        return super().loss(batch, phase)

    def after_backward(self, batch: Batch, phase: Phase) -> None:
        """Correct the gradient; on the first task there is nothing to correct it with.

        An old head without gradient keeps None, not zero: Adam would move it on by momentum.
        """
        if len(self.memory):
            gradient = flattened(self._learned, [p.grad for p in self._learned])
            corrected = self.corrected(gradient, batch)
            if corrected is not gradient:
                put_gradients(self._learned, corrected)

    def leave_phase(self, task: int, phase: Phase) -> None:
        """Give old heads their own memory again."""
        self._release()

    def end_task(self, task: int) -> None:
        """Choose the samples to keep; after the last task nothing can be forgotten any more."""
        if task + 1 < self.lab.tasks:
            self.memory.add(task, self.training_split(task))

    def notes(self) -> dict[str, Any]:
        """The budget, beside every number, and that its promise is not for this optimizer."""
        rates = self.lab.rates
        beyond = {} if rates.is_plain else {"heuristic": f"under {rates.name}, not plain SGD"}
        return {f"{self.lab.stream.kind} kept per class": self.memory.per_class, **beyond}

    def task_gradient(self, task: int) -> Tensor:
        """The gradient of the mean loss over everything kept of one task."""
        kept = self.memory.task(task)
        return self._passed(kept.inputs, kept.labels, torch.full_like(kept.labels, task))[1]

    def reference_gradient(self, samples: int) -> tuple[float, Tensor]:
        """Loss and gradient of at most this many samples, drawn from all old tasks together."""
        return self._passed(*self.memory.sample(samples, self._draws))

    def _passed(self, inputs: Inputs, labels: Tensor, tasks: Tensor) -> tuple[float, Tensor]:
        """Mean loss of samples, each through its own task's head, and its gradient; in float32."""
        with self._passing(), torch.autocast(self.lab.device.type, enabled=False):
            features = self.model.backbone(self._ready(inputs))
            if self._heads is None:
                logits = self.model.logits(features, self._task)
                loss = F.cross_entropy(logits, labels.to(features.device))
            else:
                loss = self._heads.loss(features, labels, tasks)
            return self._agreed(loss, gradient_of(loss, self._learned))

    def _ready(self, stored: Inputs) -> Inputs:
        if self.budget.augment and isinstance(stored, Tensor):
            return prepared(self.lab, stored, shared=True)
        stream = self.lab.stream
        return as_fed(stored, mean=stream.mean, std=stream.std, device=self.lab.device)

    @contextmanager
    def _passing(self) -> Iterator[None]:
        """Normalisation layers in the mode the options ask for, while the memory passes."""
        were = [layer.training for layer in self._statistics]
        for layer in self._statistics:
            layer.training = layer.training and self.budget.memory_bn == "train"
        try:
            yield
        finally:
            for layer, was in zip(self._statistics, were, strict=True):
                layer.training = was

    def _agreed(self, loss: Tensor, gradient: Tensor) -> tuple[float, Tensor]:
        """The mean over processes: all pass the same samples, but running statistics may differ."""
        if is_distributed():
            extra = torch.stack([loss.detach(), torch.ones_like(loss)]).to(gradient)
            total = sum_over_ranks(torch.cat([gradient, extra])).to(gradient.device)
            mean = total[:-1] / total[-1]
            return float(mean[-1]), mean[:-1]
        return float(loss.detach()), gradient

    def metrics(self) -> dict[str, float]:
        """How the memory acted on this task's steps so far."""
        return self.averages.means()

    def state_bytes(self) -> int:
        """Samples and labels."""
        return self.memory.bytes

    def task_state(self) -> dict[str, Any]:
        """The memory."""
        return {"memory": self.memory.state_dict()}

    def load_task_state(self, state: Mapping[str, Any]) -> None:
        """Restore the memory."""
        self.memory.load_state_dict(state["memory"])

    def epoch_state(self) -> dict[str, Any]:
        """Where the draws stand, and the figures."""
        return {"draws": self._draws.get_state(), "figures": self.averages.state_dict()}

    def load_epoch_state(self, state: Mapping[str, Any]) -> None:
        """Restore both."""
        self._draws.set_state(state["draws"])
        self.averages.load_state_dict(state["figures"])

    def close(self) -> None:
        """Leave an ordinary network behind."""
        self._release()

    def _release(self) -> None:
        if self._heads is not None:
            self._heads.release()
            self._heads = None
