"""Means of what a method reports; they survive a stop in the middle of an epoch."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor


class RunningAverages:
    """Add values at every step, read their means later.

    >>> averages = RunningAverages()
    >>> averages.add(2, penalty=1.0)
    >>> averages.add(6, penalty=3.0)
    >>> averages.means()
    {'penalty': 2.5}
    """

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._samples: dict[str, int] = {}

    def add(self, samples: int, **values: Tensor | float) -> None:
        """Add means over ``samples`` samples; 1 weights all steps equally."""
        for name, value in values.items():
            number = float(value.detach()) if isinstance(value, Tensor) else float(value)
            self._sums[name] = self._sums.get(name, 0.0) + samples * number
            self._samples[name] = self._samples.get(name, 0) + samples

    def means(self) -> dict[str, float]:
        """The means so far; nothing for a name that was not added."""
        return {name: total / max(1, self._samples[name]) for name, total in self._sums.items()}

    def read(self) -> dict[str, float]:
        """The means so far, then start again: the next epoch has its own."""
        means = self.means()
        self._sums, self._samples = {}, {}
        return means

    def state_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"sums": self._sums, "samples": self._samples}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore ``state_dict``; older checkpoints count ``steps`` for all names together."""
        self._sums = dict(state["sums"])
        self._samples = dict(state.get("samples", dict.fromkeys(self._sums, state.get("steps", 0))))
