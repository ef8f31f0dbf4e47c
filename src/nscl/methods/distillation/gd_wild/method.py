"""GD-WILD: global distillation with images from the wild (Lee et al., ICCV 2019).

See docs/methods.md, "GD-WILD". Three teachers: P, the network before the task; C, a copy of it that
learns the new task alone (*init*) and to be unsure about everything else; Q, the ensemble of both.
Then the network learns (*main*) from new images, a coreset of old ones and as many unlabelled
external ones::

    G1 = [Σ_labelled CE over all seen classes + Σ_external KL(Q ‖ M)] / their number
    G2 = KL(P ‖ M over old classes) · T² · l/r      on all images
    G3 = KL(C ‖ M over new classes) · T² · inc/r    on all images

and last (*finetune*) its heads alone, from the same losses with every labelled class weighing the
same. The original has one softmax over all classes; here the heads of all tasks so far, side by
side, are that softmax, and a task is tested by its own head. For the first task *init* trains the
network itself. A step takes a batch of the new task and draws its share of the other two kinds.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat
from torch import Tensor
from torch.optim import Optimizer

from nscl.methods.base import Batch, Lab, Method, Outcome, Phase
from nscl.methods.distillation.gd_wild.losses import ensemble_target, unsureness
from nscl.methods.distillation.gd_wild.sources import Mixed, SourceOptions, Sources
from nscl.methods.distillation.losses import kl_from, softened_kl, widened
from nscl.methods.old_heads import LearningHeads
from nscl.methods.running_averages import RunningAverages
from nscl.methods.teacher import eval_features, frozen_copy, learning_copy, network_bytes
from nscl.models.heads import TaskModel


class GDWildOptions(SourceOptions):
    """Strengths and the last phase; without external images (``pool=none``) only P and C teach."""

    strength: NonNegativeFloat = 1.0  # of G2 and G3; the original has 1
    temperature: float = Field(2.0, gt=0)
    confidence: NonNegativeFloat = 1.0  # weight of the loss that makes C unsure elsewhere
    finetune_share: float = Field(0.1, gt=0, lt=1)  # of the epochs
    finetune_rate: float = Field(0.1, gt=0)  # times the heads' learning rate


class GDWild(Method):
    """Learn from the previous network, from a teacher of the new task and from both together."""

    options_type = GDWildOptions
    kinds = ("images",)
    scenarios = ("task",)
    tuning: ClassVar[Mapping[str, tuple[float, ...]]] = {"strength": (0.3, 1.0, 3.0)}

    def __init__(self, lab: Lab, options: GDWildOptions) -> None:
        super().__init__(lab, options)
        self.choices = options
        self.sources = Sources(lab, options)
        self.previous: TaskModel | None = None
        self.current: TaskModel | None = None
        self.averages = RunningAverages()
        self._heads = LearningHeads(lab.model)

    def phases(self, task: int) -> Sequence[Phase]:
        """Teacher, network, heads; the first task has no teacher."""
        if task == 0:
            return (Phase("init"),)
        finetune = max(1, round(self.choices.finetune_share * self.epochs(task)))
        main = max(1, self.epochs(task) - finetune)
        return (Phase("init"), Phase("main", epochs=main), Phase("finetune", epochs=finetune))

    def start_task(self, task: int) -> None:
        """Take P and C from the network and choose this task's external images."""
        if task > 0:
            self.previous = frozen_copy(self.model)
            self.current = learning_copy(self.previous)
        self.sources.start_task(task, self.previous)

    def optimizer(self, task: int, phase: Phase) -> Optimizer:
        """C for *init*, everything for *main*, heads only for *finetune*."""
        if self.current is not None:
            self.current.train(phase.name == "init")
        if phase.name == "init":
            return self.lab.make_optimizer(self._groups(self._learner(), task, (task,)))
        groups = self._groups(self.model, task, range(task + 1))
        groups[0] = {**groups[0], "params": self._heads.stacked(task + 1).parameters}
        if phase.name == "finetune":
            head = groups[0]
            groups = [{**head, "lr": head["lr"] * self.choices.finetune_rate}]
        return self.lab.make_optimizer(groups)

    def _learner(self) -> TaskModel:
        """Who learns in *init*: C, and the network itself in the first task."""
        return self.model if self.current is None else self.current

    def learners(self) -> Sequence[TaskModel]:
        """The network, and C."""
        return (self.model,) if self.current is None else (self.model, self.current)

    def _groups(self, model: TaskModel, task: int, heads: Sequence[int]) -> list[dict[str, Any]]:
        rates = self.lab.rates
        own = [p for i in heads for _, p in model.head_parameters(i)]
        backbone = [p for _, p in model.backbone_parameters(norms=False)]
        norms = [p for _, p in model.norm_parameters()]
        groups = [
            self.lab.head_group(own),
            {"params": backbone, "lr": rates.backbone_lr(task), "weight_decay": rates.weight_decay},
            {"params": norms, "lr": rates.norms_lr, "weight_decay": rates.weight_decay},
        ]
        return [group for group in groups if group["params"]]

    def loss(self, batch: Batch, phase: Phase) -> Outcome:
        """The teacher's own loss in *init*, the three global ones afterwards."""
        mixed = self.sources.mix(batch)
        if phase.name == "init" or self.previous is None or self.current is None:
            return self._init_loss(batch, mixed)
        finetune = phase.name == "finetune"
        images, backbone = mixed.images, self.model.backbone
        features = eval_features(backbone, images) if finetune else backbone(images)
        answer = self._heads.stacked(batch.task + 1).logits(features)
        with torch.no_grad():
            old_features = self.previous.backbone(images)
            old = self.previous.side_by_side(old_features, range(batch.task))
            new = self.current(images, batch.task)
        weights = self.sources.weights(batch.task, mixed.labels) if finetune else None
        loss = self._global_loss(answer, old, new, mixed, weights)
        own = answer[: len(batch.labels), old.shape[1] :]
        return Outcome(loss, own, batch.labels)

    def _init_loss(self, batch: Batch, mixed: Mixed) -> Outcome:
        """Cross entropy on the task, and uniform answers to everything else."""
        logits = self._learner()(mixed.images, batch.task)
        own, foreign = logits[: len(batch.labels)], logits[len(batch.labels) :]
        loss = F.cross_entropy(own, batch.labels)
        if len(foreign):
            unsure = unsureness(foreign).mean()
            self.averages.add(len(batch.labels), confidence=unsure)
            loss = loss + self.choices.confidence * unsure
        return Outcome(loss, own, batch.labels)

    def _global_loss(
        self, answer: Tensor, old: Tensor, new: Tensor, mixed: Mixed, weights: Tensor | None
    ) -> Tensor:
        """G1 + G2 + G3 of logits over seen, prev and cur; labelled images come first."""
        known, total = mixed.labelled, len(answer)
        seen, prev, cur = answer.new_ones((3, total)) if weights is None else weights
        entropy = F.cross_entropy(answer[:known], mixed.labels[:known], reduction="none")
        opinions = (widened(logits[known:]).softmax(1) for logits in (old, new))
        target = ensemble_target(*opinions)
        both = kl_from(target, answer[known:])
        g1 = ((entropy * seen[:known]).sum() + both.sum()) / total
        t, split = self.choices.temperature, old.shape[1]
        g2 = (softened_kl(answer[:, :split], old, temperature=t) * prev).mean()
        g3 = (softened_kl(answer[:, split:], new, temperature=t) * cur).mean()
        share = split / answer.shape[1]
        kd = t**2 * (share * g2 + (1 - share) * g3)
        self.averages.add(known, kd=kd)
        if len(both):
            self.averages.add(len(both), ensemble=both.mean())
        loss: Tensor = g1 + self.choices.strength * kd
        return loss

    def leave_phase(self, task: int, phase: Phase) -> None:
        """Give the heads their own memory again."""
        self._heads.release()

    def end_task(self, task: int) -> None:
        """Make room for the new classes in the coreset."""
        self.sources.keep(task)

    def metrics(self) -> dict[str, float]:
        """The teacher's unsureness elsewhere; distillation from P and C, and from Q."""
        return self.averages.read()

    def notes(self) -> dict[str, Any]:
        """Which external images, how many of old tasks."""
        return self.sources.notes()

    def state_bytes(self) -> int:
        """P and the coreset; external images are of no task."""
        return network_bytes(self.previous) + self.sources.bytes

    def task_state(self) -> dict[str, Any]:
        """P, the coreset and this task's external images."""
        previous = None if self.previous is None else self.previous.state_dict()
        return {"previous": previous, "sources": self.sources.state_dict()}

    def load_task_state(self, state: Mapping[str, Any]) -> None:
        """Restore them; C starts as a copy of P."""
        if state["previous"] is not None:
            self.previous = frozen_copy(self.model)
            self.previous.load_state_dict(state["previous"])
            self.current = learning_copy(self.previous)
        self.sources.load_state_dict(state["sources"])

    def epoch_state(self) -> dict[str, Any]:
        """C as it is now, and averages of an unfinished epoch."""
        current = None if self.current is None else self.current.state_dict()
        return {"current": current, "meter": self.averages.state_dict()}

    def load_epoch_state(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        if self.current is not None:
            self.current.load_state_dict(state["current"])
        self.averages.load_state_dict(state["meter"])

    def close(self) -> None:
        """Leave an ordinary network behind."""
        self._heads.release()
