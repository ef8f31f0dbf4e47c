"""nscl: this repository's own method: ``nscl.Memory``, distillation, and a warmed-up head.

``loss = CE(new head) + kd · Σ_old heads KL(recall ‖ network)`` at T = 2 on the same augmented
batch, while the memory holds the backbone's displacement softly by both Kronecker factors. Two
things are kept that do not replace each other: covariances hold what the *old* inputs do,
distillation holds what old heads answer on the *new* inputs. Old heads stay as they are. A new head
is warmed up alone first, on a backbone that stands still.

One growing head answers with one softmax: cross entropy and KL are over all classes seen and all
old ones. Its old rows learn too, to leave new samples to new classes, held by the memory as the
backbone is.
"""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor
from torch.optim import Optimizer

from nscl.core.distillation import distillation
from nscl.core.projection.rules import Budget, Penalty
from nscl.methods.base import Batch, Lab, Options, Outcome, Phase
from nscl.methods.projection.base import ProjectionMethod, make_memory
from nscl.methods.teacher import eval_features


class NSCLOptions(Options):
    """How strongly old outputs are held, and how strongly old answers."""

    rule: Literal["penalty", "budget"] = "penalty"
    strength: PositiveFloat = 1.0  # of Penalty; of Budget the tolerated drift
    kd: NonNegativeFloat = 3.0  # weight of the distillation; 0: none
    temperature: float = Field(2.0, gt=0)
    warmup: float = Field(0.25, ge=0, le=1)  # of the epochs, for a new head alone
    factors: Literal["kronecker", "input"] = "kronecker"
    every: PositiveInt = 20  # steps after which the displacement is treated

    def beside_library(self) -> str:
        """The library's ``Memory`` alone is held differently and distils nothing."""
        name = "drift" if self.rule == "budget" else "strength"
        usual = ", chosen together with them" if self == NSCLOptions() else ""
        return (
            f"nscl.Memory(model) alone has Penalty({Penalty().strength:g}), and holds the "
            "statistics of batch norm, which --bn-stats decides here; this method adds "
            f"distillation of old answers (kd {self.kd:g}) and a warm-up of new heads "
            f"({self.warmup:g} of the epochs), and has {name} {self.strength:g}{usual}"
        )


class NSCL(ProjectionMethod):
    """Protect the backbone with a ``Memory``, distil old heads from what it recalls."""

    options_type = NSCLOptions
    scenarios = ("task", "domain", "class")
    tuning: ClassVar[Mapping[str, tuple[float, ...]]] = {
        "strength": (0.1, 0.3, 1.0, 3.0, 10.0),
        "kd": (1.0, 3.0, 10.0),
    }

    def __init__(self, lab: Lab, options: NSCLOptions) -> None:
        rule = Budget if options.rule == "budget" else Penalty
        memory = make_memory(
            lab,
            rule=rule(options.strength),
            factors=options.factors,
            every=options.every,
        )
        super().__init__(lab, options, memory)
        self.choices = options
        # Where tasks have the same classes, the old answer contradicts the new label of an image.
        self._adds_classes = lab.stream.scenario != "domain"
        self._grows = lab.stream.scenario == "class"

    def phases(self, task: int) -> Sequence[Phase]:
        """Warm-up of a head that joins others, then everything together."""
        warmup = math.ceil(self.choices.warmup * self.epochs(task))
        is_new = task > 0 and self._adds_classes
        return (Phase("warmup", epochs=warmup), Phase()) if is_new and warmup else (Phase(),)

    def optimizer(self, task: int, phase: Phase) -> Optimizer:
        """The new head alone while it warms up; it needs no protection."""
        alone = phase.name == "warmup"
        return self.head_optimizer(task) if alone else super().optimizer(task, phase)

    def loss(self, batch: Batch, phase: Phase) -> Outcome:
        """Cross entropy of the new head, and distillation of the old ones."""
        backbone, at_rest = self.model.backbone, phase.name == "warmup"
        features = eval_features(backbone, batch.inputs) if at_rest else backbone(batch.inputs)
        logits = self.model.logits(features, batch.task)
        loss = F.cross_entropy(logits, batch.labels)
        if self.choices.kd > 0 and self._adds_classes and batch.task > 0 and not at_rest:
            kd = self._distillation(features, logits, batch)
            self.averages.add(len(batch.labels), kd=kd, cross_entropy=loss)
            loss = loss + self.choices.kd * kd
        return Outcome(loss, logits, batch.labels)

    def _distillation(self, features: Tensor, logits: Tensor, batch: Batch) -> Tensor:
        old = range(batch.task)
        sizes = self.model.softmax_sizes(old)
        answer = logits[:, : sum(sizes)]
        if not self._grows:
            answer = self.model.side_by_side(features, old, learn=False)
        wanted = self.memory.recall(batch.inputs, old)
        return distillation(answer, wanted, temperature=self.choices.temperature, sizes=sizes)

    def end_task(self, task: int) -> None:
        """Add the task to the memory."""
        self.memory.flush()
        self.remember_task(task)
