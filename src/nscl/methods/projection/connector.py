"""Connector: the mean of a stable and a plastic network (Lin et al., CVPR 2022).

Two networks start where the previous task ended. One learns without projection, its features held
near those of the previous network by their squared distance; the other learns under Adam-NSCL's
projection. The penalty on norm layers holds both. The t-th task ends with
``(1 − 1/t)·stable + (1/t)·plastic``, running statistics included, and that network is remembered.
A task takes twice the steps of Adam-NSCL's.

Specification: docs/methods.md, "Connector".
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch.nn.functional as F
from pydantic import NonNegativeFloat
from torch import Tensor
from torch.optim import Optimizer

from nscl.core.norms.ewc import NormPenalty
from nscl.errors import NsclWarning
from nscl.methods.base import Batch, Lab, Method, Outcome, Phase
from nscl.methods.projection.adam_nscl import AdamNSCL, AdamNSCLOptions
from nscl.methods.teacher import Weights, answer, placed, weights_of

PLASTIC, STABLE = Phase("plastic"), Phase("stable")


class ConnectorOptions(AdamNSCLOptions):
    """Adam-NSCL's for the stable network, and the tie of the plastic one."""

    feature_coef: NonNegativeFloat = 1.0  # of the mean squared distance to the previous features


class Connector(AdamNSCL):
    """Adam-NSCL with an unprojected companion that is averaged in."""

    options_type = ConnectorOptions
    scenarios = ("task", "domain")  # the mean of two networks is not a growing head
    tuning: ClassVar = {"a": (3.0, 10.0, 30.0, 100.0), "feature_coef": (1.0, 10.0)}

    def __init__(self, lab: Lab, options: ConnectorOptions) -> None:
        super().__init__(lab, options)
        self.feature_coef = options.feature_coef
        self._start: Weights = {}
        self._plastic: Weights = {}
        self._distance = 0.0

    def start_task(self, task: int) -> None:
        """Both networks start here."""
        self._start = weights_of(self.model) if task else {}

    def phases(self, task: int) -> Sequence[Phase]:
        """The first task has nothing to keep; later the protected network is trained last."""
        return (PLASTIC, STABLE) if task else (Phase(),)

    def enter_phase(self, task: int, phase: Phase) -> None:
        """Put the plastic network away and start again from where it started."""
        if phase.name == STABLE.name:
            self._plastic = weights_of(self.model)
            self.model.load_state_dict(self._start)

    def optimizer(self, task: int, phase: Phase) -> Optimizer:
        """Protected; the plastic network has only the penalty on norm layers."""
        if phase.name != PLASTIC.name:
            return super().optimizer(task, phase)
        self.close()
        optimizer = Method.optimizer(self, task, phase)
        self._pull_norms(optimizer)
        return optimizer

    def _pull_norms(self, optimizer: Optimizer) -> None:
        """Add the penalty's gradient to every step, as a protection does for the stable network."""
        penalty = NormPenalty(dict(self.model.named_parameters()), self.memory.anchors)
        optimizer.register_step_pre_hook(lambda stepping, *_: penalty.add_penalty_grad(stepping))
        optimizer.register_step_post_hook(lambda stepping, *_: penalty.restore_grads(stepping))

    def loss(self, batch: Batch, phase: Phase) -> Outcome:
        """The plastic network's features stay near those of the previous network."""
        if phase.name != PLASTIC.name:
            return super().loss(batch, phase)
        backbone, prefix = self.model.backbone, "backbone."
        start = {
            name.removeprefix(prefix): value
            for name, value in self._start.items()
            if name.startswith(prefix)
        }
        features = backbone(batch.inputs)
        logits = self.model.head(batch.task)(features)
        distance = F.mse_loss(features, answer(backbone, start, batch.inputs))
        self._distance = float(distance.detach())
        loss = F.cross_entropy(logits, batch.labels) + self.feature_coef * distance
        return Outcome(loss, logits, batch.labels)

    def leave_phase(self, task: int, phase: Phase) -> None:
        """Connect the two networks."""
        if phase.name == STABLE.name:
            connected = connect(self.model.state_dict(), self._plastic, 1.0 / (task + 1))
            self.model.load_state_dict(connected)
            self._plastic = {}

    def end_task(self, task: int) -> None:
        """Remember the connected network, which has left the null space on purpose."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "moved out of the null space", NsclWarning)
            super().end_task(task)

    def metrics(self) -> dict[str, float]:
        """Adam-NSCL's, and how far the plastic network's features are from the previous ones."""
        found = super().metrics()
        return {**found, "feature_distance": self._distance} if found else found

    def task_state(self) -> dict[str, Any]:
        """The memory, and where both networks start."""
        return {"memory": super().task_state(), "start": self._start}

    def load_task_state(self, state: Mapping[str, Any]) -> None:
        """Take them back."""
        super().load_task_state(state["memory"])
        self._start = placed(state["start"], self.lab.device)

    def epoch_state(self) -> dict[str, Any]:
        """The plastic network, while the stable one is trained."""
        return {"plastic": self._plastic, "distance": self._distance}

    def load_epoch_state(self, state: Mapping[str, Any]) -> None:
        """Take it back."""
        self._plastic, self._distance = dict(state["plastic"]), float(state["distance"])


def connect(stable: Mapping[str, Tensor], plastic: Mapping[str, Tensor], share: float) -> Weights:
    """``(1 − share)·stable + share·plastic``; counters are the stable network's.

    >>> connect({"w": torch.zeros(1)}, {"w": torch.ones(1)}, 1 / 4)["w"]
    tensor([0.2500])
    """
    return {
        name: value.lerp(plastic[name].to(value.device), share)
        if value.is_floating_point()
        else value.clone()
        for name, value in stable.items()
    }
