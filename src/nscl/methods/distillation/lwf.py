"""LwF: old heads keep their answers to new images (Li and Hoiem, TPAMI 2017).

``loss = CE(new head) + strength · Σ_heads KL(teacher ‖ network)``, both softened by T = 2, without
the factor T². The teacher is the network as the last task left it, in eval mode, on the very same
augmented images. Of old tasks nothing is kept but that one copy. A new head is warmed up alone
first, while the backbone and its running statistics do not change. All old heads answer at every
step, in one product each for network and teacher. See docs/methods.md, "LwF".

One growing head answers with one softmax: cross entropy is over all classes seen, KL over all old
ones. Not for the domain scenario: with the same classes in all tasks the old answer and the new
label of the same image contradict each other, and distillation forgets as much as fine-tuning while
learning less.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat, NonNegativeInt
from torch import Tensor, nn
from torch.optim import Optimizer

from nscl.methods.base import Batch, Lab, Method, Options, Outcome, Phase
from nscl.methods.distillation.losses import kl_per_head
from nscl.methods.old_heads import LearningHeads
from nscl.methods.running_averages import RunningAverages
from nscl.methods.teacher import eval_features, frozen_copy, network_bytes
from nscl.models.heads import TaskModel


class LwFOptions(Options):
    """How strongly, how softly, and what happens to the heads."""

    strength: NonNegativeFloat = 1.0  # λ of the paper
    temperature: float = Field(2.0, gt=0)
    over_heads: Literal["sum", "mean"] = "sum"  # the sum (original) grows with the tasks
    warmup_epochs: NonNegativeInt = 5  # of the new head alone; 0: none
    freeze_old_heads: bool = False  # the original goes on training them


class LwF(Method):
    """Distil all old heads from a frozen copy of the previous network."""

    options_type = LwFOptions
    scenarios = ("task", "class")
    tuning: ClassVar[Mapping[str, tuple[float, ...]]] = {"strength": (1.0, 3.0, 10.0, 30.0)}

    def __init__(self, lab: Lab, options: LwFOptions) -> None:
        super().__init__(lab, options)
        self.choices = options
        self.teacher: TaskModel | None = None
        self.averages = RunningAverages()
        self._heads = LearningHeads(lab.model)
        self._grows = lab.stream.scenario == "class"

    def phases(self, task: int) -> Sequence[Phase]:
        """Warm-up of a head that joins others, then everything together."""
        if task == 0 or self.choices.warmup_epochs == 0:
            return (Phase(),)
        return (Phase("warmup", epochs=self.choices.warmup_epochs), Phase())

    def start_task(self, task: int) -> None:
        """The network as it is now becomes the teacher."""
        if task > 0:
            self.teacher = frozen_copy(self.model)

    def optimizer(self, task: int, phase: Phase) -> Optimizer:
        """The new head alone while it warms up."""
        warms_up = phase.name == "warmup"
        return self.head_optimizer(task) if warms_up else super().optimizer(task, phase)

    def parameter_groups(self, task: int) -> list[dict[str, Any]]:
        """Old heads learn too, unless they are frozen."""
        groups = super().parameter_groups(task)
        if self.choices.freeze_old_heads or task == 0 or self._grows:
            return groups
        old = self._heads.stacked(task).parameters
        return [*groups, self.lab.head_group(old)]

    def learning_heads(self, task: int) -> list[nn.Parameter]:
        """The new head; of one growing head old rows too, unless they are frozen."""
        if self.choices.freeze_old_heads:
            return [p for _, p in self.model.head_parameters(task)]
        return super().learning_heads(task)

    def loss(self, batch: Batch, phase: Phase) -> Outcome:
        """Cross entropy of the new head, and distillation of the old ones."""
        if phase.name == "warmup":
            features = eval_features(self.model.backbone, batch.inputs)
        else:
            features = self.model.backbone(batch.inputs)
        logits = self.model.logits(features, batch.task)
        loss = F.cross_entropy(logits, batch.labels)
        if self.teacher is not None and phase.name != "warmup":
            kd = self._distillation(self.teacher, features, logits, batch)
            self.averages.add(len(batch.labels), kd=kd, cross_entropy=loss)
            loss = loss + self.choices.strength * kd
        return Outcome(loss, logits, batch.labels)

    def _distillation(
        self, teacher: TaskModel, features: Tensor, logits: Tensor, batch: Batch
    ) -> Tensor:
        old = range(batch.task)
        sizes = self.model.softmax_sizes(old)
        with torch.no_grad():
            target = teacher.side_by_side(teacher.backbone(batch.inputs), old)
        if self._grows:
            answer = logits[:, : sum(sizes)]
        elif self.choices.freeze_old_heads:
            # They equal the teacher's; those of the network would collect gradients for nothing.
            answer = teacher.side_by_side(features, old)
        else:
            answer = self._heads.stacked(batch.task).logits(features)
        return kl_per_head(
            answer,
            target,
            sizes,
            temperature=self.choices.temperature,
            over_heads=self.choices.over_heads,
        )

    def leave_phase(self, task: int, phase: Phase) -> None:
        """Give old heads their own memory again."""
        self._heads.release()

    def metrics(self) -> dict[str, float]:
        """Mean distillation loss of the epoch, before its strength, beside the cross entropy."""
        return self.averages.read()

    def state_bytes(self) -> int:
        """One copy of the network."""
        return network_bytes(self.teacher)

    def task_state(self) -> dict[str, Any]:
        """The teacher."""
        return {} if self.teacher is None else {"teacher": self.teacher.state_dict()}

    def load_task_state(self, state: Mapping[str, Any]) -> None:
        """Restore the teacher."""
        if state:
            self.teacher = frozen_copy(self.model)
            self.teacher.load_state_dict(state["teacher"])

    def epoch_state(self) -> dict[str, Any]:
        """Averages of an unfinished epoch."""
        return self.averages.state_dict()

    def load_epoch_state(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        self.averages.load_state_dict(state)

    def close(self) -> None:
        """Leave an ordinary network behind."""
        self._heads.release()
