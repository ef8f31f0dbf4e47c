"""AdNS: Adam-NSCL with combined null spaces and a teacher per task (Kong et al., ECCV 2022).

Three additions to Adam-NSCL, as the authors' code has them (docs/methods.md, "AdNS"):

1. the threshold ``a`` goes from ``a_core`` to ``a_end`` over the tasks;
2. the space that steps may use is the part that the new null space shares with the previous one
   (``null_spaces.py``); it can hold directions outside of the new one: the metric ``share`` is the
   energy old inputs have in it;
3. before a task its head is trained alone, on the backbone as it is; while the task is trained, its
   logits are held near those of that solution: ``kl_coef`` times the cross entropy of distributions
   softened by T = 2, without a factor T².
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, model_validator
from torch import Tensor
from torch.optim import SGD, Optimizer

from nscl.core.covariance.covariance import Covariance
from nscl.core.distributed.collectives import sum_over_ranks
from nscl.core.model.block import Block
from nscl.core.projection.low_rank_projector import Projection, thin_projection
from nscl.core.projection.rules import Ratio
from nscl.core.projection.spectrum import Spectrum, decompose
from nscl.data.tasks import Split
from nscl.methods.base import Batch, Lab, Options, Outcome, Phase
from nscl.methods.distillation.losses import softened_cross_entropy
from nscl.methods.projection.base import ProjectionMethod, make_memory
from nscl.methods.projection.subspaces.basis_growth import spectrum_of
from nscl.methods.projection.subspaces.null_spaces import combine_null_spaces, projector, threshold
from nscl.methods.teacher import Weights, answer, eval_mode, placed, weights_of

HEAD = "head"


class AdNSOptions(Options):
    """The three additions' numbers; defaults are the authors' for 10-split CIFAR-100."""

    used_with: ClassVar[Mapping[str, str]] = {
        "kl_coef": "head_epochs above 0",
        "temperature": "kl_coef above 0",
        "teacher": "kl_coef above 0",
        "head_rate": "head_epochs above 0",
    }

    a_core: PositiveFloat = 160.0  # threshold after the first task
    a_end: PositiveFloat | None = None  # and towards the last; None: 15/16 of a_core, as there
    u_k: float = Field(0.9, gt=0, le=1)  # part of the mean dimension that is kept of two spaces
    kl_coef: NonNegativeFloat = 0.5
    temperature: PositiveFloat = 2.0
    head_epochs: NonNegativeInt = 10  # 0: no teacher
    head_rate: PositiveFloat | None = None  # of its plain SGD, constant; None: the heads' own rate
    # The teacher answers on the very batch that is trained on; "recorded", as released: its logits
    # of one augmentation of each image, whatever augmentation is trained on.
    teacher: Literal["same_batch", "recorded"] = "same_batch"
    scale: Literal["none", "frobenius"] = "none"
    norms: Literal["ewc", "freeze", "train"] = "ewc"
    features: Literal["per_sample", "batch_mean"] = "per_sample"
    literal: bool = False  # the authors' float32 rule
    stats_augment: bool = True

    @model_validator(mode="after")
    def _tightens(self) -> Self:
        if self.a_end is not None and self.a_end > self.a_core:
            raise ValueError(f"a_end {self.a_end:g} must not exceed a_core {self.a_core:g}")
        return self

    def threshold_of(self, task: int, tasks: int) -> float:
        """``a`` after a task, counted from 0, of ``tasks``."""
        last = self.a_core * 15 / 16 if self.a_end is None else self.a_end
        return threshold(task, tasks, first=self.a_core, last=last)


class AdNS(ProjectionMethod):
    """Keeps covariances and one basis per layer; during a task, its teacher."""

    options_type = AdNSOptions
    tuning: ClassVar = {"a_core": (10.0, 30.0, 100.0, 300.0, 1000.0), "kl_coef": (0.5, 1.0)}

    @classmethod
    def strengths(cls, options: AdNSOptions) -> Mapping[str, tuple[float, ...]]:
        """Without a teacher there is nothing that ``kl_coef`` could weigh."""
        taught = options.head_epochs > 0
        return {name: v for name, v in cls.tuning.items() if taught or name != "kl_coef"}

    def __init__(self, lab: Lab, options: AdNSOptions) -> None:
        memory = make_memory(
            lab,
            norms=options.norms,
            projector=self.project,
        )
        super().__init__(lab, options, memory)
        self.choices = options
        self._teacher: Weights = {}
        self._recorded: Tensor | None = None
        self._distilled = 0.0

    def start_task(self, task: int) -> None:
        """The last task's teacher has nothing to say about this one."""
        self._teacher, self._recorded, self._distilled = {}, None, 0.0

    def phases(self, task: int) -> Sequence[Phase]:
        """From the second task on, the head first."""
        if task == 0 or self.choices.head_epochs == 0:
            return (Phase(),)
        return (Phase(HEAD, epochs=self.choices.head_epochs, decays=False), Phase())

    def optimizer(self, task: int, phase: Phase) -> Optimizer:
        """Plain SGD for the head alone; a head that all tasks share is protected there as well."""
        if phase.name != HEAD:
            return super().optimizer(task, phase)
        head = [p for _, p in self.model.head_parameters(task)]
        return self.protect(SGD(head, lr=self.choices.head_rate or self.lab.rates.heads_lr))

    def training_split(self, task: int) -> Split:
        """With recorded logits, samples carry their number in the place of the label."""
        split = super().training_split(task)
        if not self._is_numbered(task):
            return split
        numbered = copy.copy(split)
        object.__setattr__(numbered, "labels", torch.arange(len(split)))  # splits are frozen
        return numbered

    def _is_numbered(self, task: int) -> bool:
        return self.choices.teacher == "recorded" and len(self.phases(task)) > 1

    def loss(self, batch: Batch, phase: Phase) -> Outcome:
        """Cross entropy, and distillation once there is a teacher."""
        labels = batch.labels
        if self._is_numbered(batch.task):
            labels = self.lab.stream[batch.task].train.labels.to(labels.device)[labels]
        if phase.name == HEAD:
            with torch.no_grad(), eval_mode(self.model.backbone):
                features = self.model.backbone(batch.inputs)
            logits = self.model.head(batch.task)(features)
            return Outcome(F.cross_entropy(logits, labels), logits, labels)
        logits = self.logits(batch.inputs, batch.task)
        loss = F.cross_entropy(logits, labels)
        teacher = self._teacher_logits(batch)
        if teacher is not None:
            distilled = softened_cross_entropy(
                logits, teacher, temperature=self.choices.temperature
            )
            self._distilled = float(distilled.detach())
            loss = loss + self.choices.kl_coef * distilled
        return Outcome(loss, logits, labels)

    def _teacher_logits(self, batch: Batch) -> Tensor | None:
        if self._recorded is not None:
            return self._recorded.to(batch.labels.device)[batch.labels]
        if self._teacher:
            return answer(self.model, self._teacher, batch.inputs, batch.task)
        return None

    def leave_phase(self, task: int, phase: Phase) -> None:
        """The head's solution becomes the teacher."""
        if phase.name == HEAD and self.choices.teacher == "same_batch":
            self._teacher = weights_of(self.model)
        elif phase.name == HEAD:
            self._recorded = self._record(task)

    @torch.no_grad()
    def _record(self, task: int) -> Tensor:
        split = self.training_split(task)
        classes = self.model.head(task).out_features
        logits = torch.zeros(len(split), classes)
        with eval_mode(self.model):
            for inputs, numbers in self.lab.loader(split, purpose="record", shuffle=False):
                logits[numbers.cpu()] = self.logits(inputs, task).float().cpu()
        return sum_over_ranks(logits)

    def end_task(self, task: int) -> None:
        """Add the task to the covariances and combine their null spaces with the previous ones."""
        if self.is_last(task):
            return
        self.remember(
            self.batches(task, augment=self.choices.stats_augment),
            task,
            batch_mean=self.choices.features == "batch_mean",
        )

    def project(
        self, block: Block, covariance: Covariance, previous: Projection | None
    ) -> tuple[Projection, Spectrum]:
        """Combine the null space of all tasks so far with the space that steps could use."""
        chosen, dense = self.choices, covariance.dense()
        rule = Ratio(chosen.threshold_of(self.memory.tasks, self.lab.tasks), literal=chosen.literal)
        found, frame = decompose(dense, rule, noise=covariance.rounding(dense, block.features))
        vectors, weights = frame, found.weights
        if previous is not None:
            now = (frame * weights[:, None]) @ frame.mT
            vectors, weights = combine_null_spaces(projector(previous), now, part=chosen.u_k)
        spectrum = spectrum_of(frame, dense, thin_projection(vectors, weights))
        projection = thin_projection(vectors, weights, frobenius=chosen.scale == "frobenius")
        return projection.to(device=dense.device, dtype=torch.float32), spectrum

    def metrics(self) -> dict[str, float]:
        """Adam-NSCL's, and the last step's distillation loss."""
        found = super().metrics()
        return {**found, "distillation": self._distilled} if found else found

    def epoch_state(self) -> dict[str, Any]:
        """The teacher, in whichever form."""
        return {"teacher": self._teacher, "recorded": self._recorded}

    def load_epoch_state(self, state: Mapping[str, Any]) -> None:
        """Take the teacher back."""
        self._teacher = placed(state["teacher"], self.lab.device)
        self._recorded = state["recorded"]
