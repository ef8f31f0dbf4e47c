"""MUC-MAS: importances of several classifiers that disagree elsewhere (Liu et al., ECCV 2020).

Four stages per task (docs/methods.md, "MUC-MAS"). *Train*: ``CE + (strength/2) Σ Ω (θ − θ*)²``.
*Importance*: MAS through the main head. *Side*: on a frozen backbone, K side classifiers learn the
task while their answers to unlabelled images from elsewhere are pushed apart: ``Σ_k CE_k − weight ·
D``. *Side importance*: MAS through each of them, their mean weighted, element by element, by a
factor that is largest where all agree with the main one. Ω is the sum over tasks of both
importances (the released code sums only the second; that is an accident there). Side classifiers
are discarded.

The published strength α = 0.01 has no ½ and goes with the mean over classes of squared outputs:
``strength = 2 α / classes`` here. Of old tasks θ* and Ω are kept. Nothing follows the last task, so
its last three stages are left out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch.optim import Optimizer

from nscl.errors import NsclError
from nscl.methods.base import Batch, Lab, Outcome, Phase
from nscl.methods.external_images import ExternalImages, PoolOptions, prepared
from nscl.methods.rank_rng import drawn_rows
from nscl.methods.regularization.importance_pass import ImportanceMethod, ImportanceOptions
from nscl.methods.regularization.side_classifiers import (
    SideClassifiers,
    discrepancy,
    importance_of_task,
)
from nscl.methods.running_averages import RunningAverages
from nscl.methods.teacher import eval_features


class MUCMASOptions(ImportanceOptions, PoolOptions):
    """Strength, side classifiers, the factor of their importances."""

    used_with: ClassVar[Mapping[str, str]] = {"constant": "factor constant"}

    strength: PositiveFloat = 0.01  # 2 α / classes of the published α = 0.01 for two classes
    side_heads: int = Field(3, ge=2)
    side_epochs: PositiveInt | None = None  # None: 80 for every 200 of training, as published
    discrepancy: NonNegativeFloat = 1.0  # weight of D; too much of it ruins the side classifiers
    factor: Literal["stability", "constant"] = "stability"
    constant: PositiveFloat = 1.4  # as the authors' CIFAR script has it
    samples: PositiveInt | None = 400  # at most, for each of the 1 + side_heads importances
    stats_augment: bool = False


class MUCMAS(ImportanceMethod[MUCMASOptions]):
    """MAS whose importances come from a main classifier and a few disagreeing ones."""

    options_type = MUCMASOptions
    kinds = ("images",)
    tuning: ClassVar[Mapping[str, tuple[float, ...]]] = {"strength": (0.01, 0.03, 0.1, 0.3, 1.0)}

    def __init__(self, lab: Lab, options: MUCMASOptions) -> None:
        super().__init__(lab, options)
        self.external = ExternalImages(lab, options)
        self.side: SideClassifiers | None = None
        self.averages = RunningAverages()

    def phases(self, task: int) -> Sequence[Phase]:
        """Training, then the side classifiers."""
        published = max(1, round(0.4 * self.epochs(task)))
        side = Phase("side", epochs=self.choices.side_epochs or published)
        return (Phase(), side) if task + 1 < self.lab.tasks else (Phase(),)

    def optimizer(self, task: int, phase: Phase) -> Optimizer:
        """Side classifiers are trained apart; made here, they are there on resume as well."""
        if phase.name != "side":
            return super().optimizer(task, phase)
        self.side = SideClassifiers(self.model.head(task), self.choices.side_heads)
        return self.lab.make_optimizer([self.lab.head_group(self.side.parameters())])

    def loss(self, batch: Batch, phase: Phase) -> Outcome:
        """Cross entropy; or that of the side classifiers and their discrepancy."""
        if phase.name == "side" and self.side is not None:
            return self._side_loss(batch, self.side)
        return super().loss(batch, phase)

    def after_backward(self, batch: Batch, phase: Phase) -> None:
        """The penalty holds what is trained; side classifiers are new with every task."""
        if phase.name != "side":
            super().after_backward(batch, phase)

    def _side_loss(self, batch: Batch, side: SideClassifiers) -> Outcome:
        pool = self.external.of_task(batch.task)
        rows = drawn_rows(len(pool), len(batch.labels))
        elsewhere = prepared(self.lab, pool.images[rows])
        answers = side(eval_features(self.model.backbone, batch.images))
        others = side(eval_features(self.model.backbone, elsewhere))
        apart = discrepancy(others.softmax(-1))
        accuracy = side.accuracy(answers, batch.labels)
        self.averages.add(len(batch.labels), discrepancy=apart, side_accuracy=accuracy)
        loss = side.loss(answers, batch.labels) - self.choices.discrepancy * apart
        return Outcome(loss, answers.softmax(-1).mean(1), batch.labels)

    def remember(self, task: int) -> None:
        """Add both importances to those of older tasks; discard the side classifiers."""
        if self.side is None:
            raise NsclError(f"task {task + 1} has no side classifiers: their phase must come first")
        shared = self.shared_parameters()
        found = importance_of_task(
            self.model,
            self.side,
            task,
            parameters=shared,
            batches=lambda: self.finished_task(task),
            factor="stability" if self.choices.factor == "stability" else self.choices.constant,
        )
        self.penalty.move(found, shared)
        self.side = None

    def metrics(self) -> dict[str, float]:
        """The penalty; how side classifiers fare and differ while they learn."""
        return super().metrics() | self.averages.read()

    def notes(self) -> dict[str, Any]:
        """Which images from elsewhere."""
        return self.external.notes()

    def task_state(self) -> dict[str, Any]:
        """θ*, Ω and the pool's name."""
        return super().task_state() | {"pool": self.external.name}

    def load_task_state(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        super().load_task_state(state)
        self.external.expect(state["pool"])

    def epoch_state(self) -> dict[str, Any]:
        """The side classifiers as they are now, and averages of an unfinished epoch."""
        side = None if self.side is None else self.side.state_dict()
        return {"side": side, "meter": self.averages.state_dict(), "pool": self.external.name}

    def load_epoch_state(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        if self.side is not None and state["side"] is not None:
            self.side.load_state_dict(state["side"])
        self.averages.load_state_dict(state["meter"])
        self.external.expect(state["pool"])
