"""How far the running statistics of normalisation layers have moved."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Shift:
    """How far a normalisation layer's running statistics have moved, in remembered deviations."""

    name: str
    shift: float


def describe_shifts(statistics: Sequence[Shift]) -> list[str]:
    """A line for each of the three that moved most."""
    moved = sorted((s for s in statistics if s.shift > 0), key=lambda s: -s.shift)
    return [f"statistics of {s.name} moved by {s.shift:.3g} σ" for s in moved[:3]]
