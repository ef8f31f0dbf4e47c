"""Counts of an epoch: loss, correct answers, samples, steps.

Not ``RunningAverages``: ranks add these counts up, the display reads the step, and an accuracy from
integer counts is exact.
"""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Tally:
    """Sums over the steps of an epoch; part of a checkpoint in the middle of one."""

    loss: float = 0.0
    hits: int = 0
    seen: int = 0
    steps: int = 0

    def means(self) -> dict[str, float]:
        """Mean loss and training accuracy so far."""
        seen = max(1, self.seen)
        return {"loss": self.loss / seen, "accuracy": 100.0 * self.hits / seen}

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)
