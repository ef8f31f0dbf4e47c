"""One line of the table: our cost, the cost of the reference, and the target."""

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Target:
    """A limit of a ratio: ours ÷ reference at most, or reference ÷ ours at least, ``value``."""

    kind: Literal["at most", "at least"]
    value: float

    def met_by(self, ratio: float) -> bool:
        """Whether a measured ratio keeps the promise."""
        return ratio <= self.value if self.kind == "at most" else ratio >= self.value

    def __str__(self) -> str:
        return f"{'≤' if self.kind == 'at most' else '≥'} {self.value:g}"


@dataclass(frozen=True)
class Figure:
    """A measurement. Without a target it is there to be compared with.

    >>> Figure("speed", "a sum", ours=2.0, reference=8.0, unit="ms", target=at_least(4)).ratio
    4.0
    """

    name: str
    title: str
    ours: float
    reference: float
    unit: str
    target: Target | None = None
    note: str = ""

    @property
    def ratio(self) -> float:
        """Ours over the reference; the other way round where the promise is "at least"."""
        if self.target is not None and self.target.kind == "at least":
            return self.reference / self.ours
        return self.ours / self.reference

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        return None if self.target is None else self.target.met_by(self.ratio)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        target = None if self.target is None else str(self.target)
        return {**asdict(self), "ratio": self.ratio, "target": target, "met": self.met}


def at_most(value: float) -> Target:
    """Ours ÷ reference may not exceed this."""
    return Target("at most", value)


def at_least(value: float) -> Target:
    """Reference ÷ ours must reach this."""
    return Target("at least", value)
