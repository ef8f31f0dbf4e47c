"""Frozen backbone: after the first task only heads are trained.

With a head per task nothing is forgotten; the one head of a domain or class stream goes on
learning, all of it.
"""

from typing import Any

from nscl.methods.base import Batch, Method, Outcome, Phase
from nscl.methods.teacher import eval_mode


class Frozen(Method):
    """The stability reference: BWT 0 with a head per task, the plasticity of a linear head."""

    tunes_rate = False
    scenarios = ("task", "domain", "class")

    def parameter_groups(self, task: int) -> list[dict[str, Any]]:
        """All parameters on the first task, then the head only."""
        if task == 0:
            return super().parameter_groups(task)
        return [self.lab.head_group(self.learning_heads(task))]

    def loss(self, batch: Batch, phase: Phase) -> Outcome:
        """Later tasks see the backbone as it was: its running statistics do not move either."""
        if batch.task == 0:
            return super().loss(batch, phase)
        with eval_mode(self.model.backbone):
            return super().loss(batch, phase)
