"""Methods that protect their optimizer with a memory: what Adam-NSCL and its relatives share."""

import warnings
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from nscl.core.capture.data_pass import Forward
from nscl.core.memory import Memory
from nscl.core.protection.step_hooks import Protection
from nscl.data.batches import Batches
from nscl.data.inputs import Inputs
from nscl.errors import StatisticsWarning
from nscl.methods.base import Lab, Method, Options, Phase
from nscl.methods.running_averages import RunningAverages


class ProjectionMethod(Method):
    """Every step of every phase is projected by ``memory``; a subclass says when it remembers."""

    def __init__(self, lab: Lab, options: Options, memory: Memory) -> None:
        super().__init__(lab, options)
        self.memory = memory
        self.averages = RunningAverages()  # of what a subclass adds in its loss
        self._protection: Protection | None = None
        self._protected: Optimizer | None = None  # a protection alone does not keep it alive

    def optimizer(self, task: int, phase: Phase) -> Optimizer:
        """The usual optimizer, protected."""
        return self.protect(super().optimizer(task, phase))

    def protect(self, optimizer: Optimizer) -> Optimizer:
        """Let the memory project this optimizer's steps instead of the last one's."""
        self.close()
        self._protected, self._protection = optimizer, self.memory.protect(optimizer)
        return optimizer

    def batches(self, task: int, *, augment: bool) -> Batches:
        """A task's training data once more, for the memory."""
        return self.lab.loader(
            self.training_split(task), purpose="remember", augment=None if augment else "none"
        )

    def remember(self, batches: Batches, task: int, **options: Any) -> None:
        """Add a task to the memory, fed through its own head."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StatisticsWarning)  # a remark of the run says it
            self.memory.remember(batches, forward=through_head(task), mask=mask_of, **options)

    def is_last(self, task: int) -> bool:
        """After the last task nothing can be forgotten any more, so nothing is remembered."""
        return task + 1 >= self.lab.tasks

    def remember_task(self, task: int, *, augment: bool = True, batch_mean: bool = False) -> None:
        """Add a task's inputs to the memory, if another task follows."""
        if not self.is_last(task):
            self.remember(self.batches(task, augment=augment), task, batch_mean=batch_mean)

    def metrics(self) -> dict[str, float]:
        """Free directions, how far old outputs have moved since the last task, and averages."""
        averages = self.averages.read()
        if not self.memory.tasks:
            return averages
        total = self.memory.report().total
        forgetting = self.memory.forgetting()
        shifts = [s.shift for s in forgetting.statistics]
        predicted = forgetting.total.loss
        return {
            "free": total.free / total.features,
            "share": total.share,
            "drift": forgetting.total.relative,
            "statistics_shift": max(shifts, default=0.0),
            **({} if predicted is None else {"old_loss_rise": predicted}),
            **averages,
        }

    def spectra(self) -> Mapping[str, tuple[Tensor, Tensor]]:
        """Eigenvalues and weights of every layer."""
        return self.memory.spectra()

    def state_bytes(self) -> int:
        """Covariances, weights at the last task, anchors and the thin bases."""
        return sum(self.memory.nbytes.values())

    def task_state(self) -> dict[str, Any]:
        """The memory."""
        return self.memory.state_dict() if self.memory.tasks else {}

    def load_task_state(self, state: Mapping[str, Any]) -> None:
        """Take the memory back; its bases are rebuilt."""
        if state:
            self.memory.load_state_dict(state)

    def epoch_state(self) -> dict[str, Any]:
        """Steps that wait to be treated, and averages of an unfinished epoch."""
        pending = self._protection.state_dict() if self._protection else {}
        return {"pending": pending, "meter": self.averages.state_dict()}

    def load_epoch_state(self, state: Mapping[str, Any]) -> None:
        """Take them back."""
        if self._protection is not None and state.get("pending"):
            self._protection.load_state_dict(state["pending"])
        if "meter" in state:
            self.averages.load_state_dict(state["meter"])

    def close(self) -> None:
        """Remove the protection."""
        if self._protection is not None:
            self._protection.remove()
        self._protection = self._protected = None


def make_memory(lab: Lab, **options: Any) -> Memory:
    """A memory of the run's network, without the heads that need no protection.

    The run's own ``bn_stats`` decides about running statistics.
    """
    return Memory(lab.model, statistics="update", exclude=unprotected_heads(lab), **options)


def unprotected_heads(lab: Lab) -> tuple[str, ...]:
    """What a memory leaves out: a head per task needs no protection.

    One head for all does, and so do the old rows of one that grows: new data train them too. Their
    inputs are remembered as any layer's; rows that no remembered batch has reached are free.
    """
    return ("heads",) if lab.stream.scenario == "task" else ()


def through_head(task: int) -> Forward:
    """How a batch of the lab's loaders is fed to the network."""

    def forward(model: nn.Module, batch: tuple[Inputs, Tensor]) -> Any:
        return model(batch[0], task)

    return forward


def mask_of(batch: tuple[Inputs, Tensor]) -> Tensor | None:
    """Which positions of the texts of a batch are real; images have no mask."""
    inputs = batch[0]
    return inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
