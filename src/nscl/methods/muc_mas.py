"""MUC-MAS: importances of several classifiers that disagree elsewhere (Liu et al., ECCV 2020).

Four stages per task (METHODS §7). *Train*: ``CE + (strength/2) Σ Ω (θ − θ*)²``. *Importance*: MAS
through the main head. *Side*: on a backbone that stands still, K side classifiers learn the task
while their answers to unlabelled images from elsewhere are pushed apart: ``Σ_k CE_k − weight · D``.
*Side importance*: MAS through each of them, their mean weighted, element by element, by a factor
that is largest where all agree with the main one. Ω is the sum over tasks of both importances (the
released code sums only the second; that is an accident there). Side classifiers are thrown away.

The published strength α = 0.01 has no ½ and goes with the mean over classes of squared outputs:
``strength = 2 α / classes`` here. Of old tasks θ* and Ω are kept. Nothing follows the last task, so
its last three stages are left out. In the domain scenario the one head is protected too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.optim import Optimizer

from nscl.methods.base import Batch, Lab, Method, Outcome, Phase
from nscl.methods.external import ExternalImages, PoolOptions, drawn_rows, prepared
from nscl.methods.meter import Meter
from nscl.methods.side_classifiers import (
    Importance,
    SideClassifiers,
    discrepancy,
    importance_of_task,
)
from nscl.methods.teachers import features_at_rest


class MUCMASOptions(PoolOptions):
    """Strength, side classifiers, the factor of their importances."""

    strength: NonNegativeFloat = 0.01  # 2 α / classes of the published α = 0.01 for two classes
    side_heads: int = Field(3, ge=2)
    side_epochs: PositiveInt | None = None  # None: 80 for every 200 of training, as published
    discrepancy: NonNegativeFloat = 1.0  # weight of D; too much of it ruins the side classifiers
    factor: Literal["stability", "constant"] = "stability"
    constant: PositiveFloat = 1.4  # as the authors' CIFAR script has it
    samples: PositiveInt | None = None  # for importances; None: all of the task


class MUCMAS(Method):
    """MAS whose importances come from a main classifier and a few disagreeing ones."""

    options_type = MUCMASOptions
    tuning: ClassVar[Mapping[str, tuple[float, ...]]] = {"strength": (0.001, 0.01, 0.1, 1.0, 10.0)}

    def __init__(self, lab: Lab, options: MUCMASOptions) -> None:
        super().__init__(lab, options)
        self.choices = options
        self.external = ExternalImages(lab, options)
        self.anchor: Importance = {}
        self.importance: Importance = {}
        self.side: SideClassifiers | None = None
        self.meter = Meter()

    def shared(self) -> dict[str, nn.Parameter]:
        """The parameters that old tasks need: the backbone, and the head if there is only one."""
        backbone = dict(self.model.backbone_parameters())
        multi_head = self.lab.stream.scenario == "task"
        return backbone if multi_head else backbone | dict(self.model.head_parameters(0))

    def phases(self, task: int) -> Sequence[Phase]:
        """Training, then the side classifiers."""
        published = max(1, round(0.4 * self.lab.epochs))
        side = Phase("side", epochs=self.choices.side_epochs or published)
        return (Phase(), side) if task + 1 < self.lab.tasks else (Phase(),)

    def optimizer(self, task: int, phase: Phase) -> Optimizer:
        """Side classifiers are trained apart; made here, they are there on resume as well."""
        if phase.name != "side":
            return super().optimizer(task, phase)
        self.side = SideClassifiers(self.model.head(task), self.choices.side_heads)
        rate = self.lab.rates.heads_lr
        groups = [{"params": list(self.side.parameters()), "lr": rate, "weight_decay": 0.0}]
        return self.lab.make_optimizer(groups)

    def loss(self, batch: Batch, phase: Phase) -> Outcome:
        """Cross entropy and penalty; or that of the side classifiers and their discrepancy."""
        if phase.name == "side" and self.side is not None:
            return self._side_loss(batch, self.side)
        outcome = super().loss(batch, phase)
        if not self.importance:
            return outcome
        penalty = self.penalty()
        self.meter.add(len(batch.labels), penalty=penalty)
        return replace(outcome, loss=outcome.loss + penalty)

    def penalty(self) -> Tensor:
        """``(strength/2) Σ Ω (θ − θ*)²``: the cost of one task, whatever their number."""
        terms = [
            (self.importance[name] * (parameter - self.anchor[name]).square()).sum()
            for name, parameter in self.shared().items()
        ]
        return self.choices.strength / 2 * torch.stack(terms).sum()

    def _side_loss(self, batch: Batch, side: SideClassifiers) -> Outcome:
        pool = self.external.of_task(batch.task)
        rows = drawn_rows(self.lab, len(pool), len(batch.labels))
        elsewhere = prepared(self.lab, pool.images[rows])
        answers = side(features_at_rest(self.model.backbone, batch.images))
        others = side(features_at_rest(self.model.backbone, elsewhere))
        apart = discrepancy(others.softmax(-1))
        accuracy = side.accuracy(answers, batch.labels)
        self.meter.add(len(batch.labels), discrepancy=apart, side_accuracy=accuracy)
        loss = side.loss(answers, batch.labels) - self.choices.discrepancy * apart
        return Outcome(loss, answers.softmax(-1).mean(1), batch.labels)

    def end_task(self, task: int) -> None:
        """Both importances join those of older tasks; the side classifiers have served."""
        if self.side is None:
            return
        found = importance_of_task(
            self.model,
            self.side,
            task,
            parameters=dict(self.shared()),
            batches=lambda: self._images(task),
            factor="stability" if self.choices.factor == "stability" else self.choices.constant,
        )
        self.importance = {n: self.importance.get(n, 0) + value for n, value in found.items()}
        self.anchor = {name: p.detach().clone() for name, p in self.shared().items()}
        self.side = None

    def _images(self, task: int) -> Iterator[Tensor]:
        """The task's images, as many as importances are to see; the same ones every time."""
        split = self.training_split(task)
        order = torch.randperm(len(split), generator=torch.Generator().manual_seed(self.lab.seed))
        chosen = split.select(order[: self.choices.samples])
        loader = self.lab.loader(chosen, purpose="importance", augment="none", shuffle=False)
        # Every process takes all images: importances of a part would differ between them.
        return (images for images, _ in replace(loader, shard=(0, 1)))

    def metrics(self) -> dict[str, float]:
        """The penalty while training; how side classifiers fare and differ while they learn."""
        return self.meter.read()

    def notes(self) -> dict[str, Any]:
        """Which images from elsewhere."""
        return self.external.notes()

    def state_bytes(self) -> int:
        """θ* and Ω."""
        return sum(t.nbytes for t in (*self.anchor.values(), *self.importance.values()))

    def task_state(self) -> dict[str, Any]:
        """θ*, Ω and the pool's name."""
        return {"anchor": self.anchor, "importance": self.importance, "pool": self.external.name}

    def load_task_state(self, state: Mapping[str, Any]) -> None:
        """Take them back, to the training device."""
        device = self.lab.device
        self.anchor = {name: value.to(device) for name, value in state["anchor"].items()}
        self.importance = {name: value.to(device) for name, value in state["importance"].items()}
        self.external.expect(state["pool"])

    def epoch_state(self) -> dict[str, Any]:
        """The side classifiers as far as they are, and figures of an unfinished epoch."""
        side = None if self.side is None else self.side.state_dict()
        return {"side": side, "meter": self.meter.state_dict(), "pool": self.external.name}

    def load_epoch_state(self, state: Mapping[str, Any]) -> None:
        """Take them back."""
        if self.side is not None and state["side"] is not None:
            self.side.load_state_dict(state["side"])
        self.meter.load_state_dict(state["meter"])
        self.external.expect(state["pool"])
