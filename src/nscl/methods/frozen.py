"""Frozen backbone: after the first task only heads are trained.

With a head per task nothing is forgotten; the one head of a domain stream goes on learning.
"""

from typing import Any

from nscl.methods.base import Batch, Method, Outcome, Phase
from nscl.methods.former import resting


class Frozen(Method):
    """The stability reference: BWT 0 with a head per task, the plasticity of a linear head."""

    def parameter_groups(self, task: int) -> list[dict[str, Any]]:
        """All parameters on the first task, then the head only."""
        if task == 0:
            return super().parameter_groups(task)
        head = [p for _, p in self.model.head_parameters(task)]
        return [{"params": head, "lr": self.lab.rates.heads_lr, "weight_decay": 0.0}]

    def loss(self, batch: Batch, phase: Phase) -> Outcome:
        """Later tasks see the backbone as it was: its running statistics stand still too."""
        if batch.task == 0:
            return super().loss(batch, phase)
        with resting(self.model.backbone):
            return super().loss(batch, phase)
