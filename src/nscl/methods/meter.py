"""Means over an epoch of what a method wants to show; survives a stop in the middle of one."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor


class Meter:
    """Add figures at every step, read their means at the end of the epoch.

    >>> meter = Meter()
    >>> meter.add(2, penalty=1.0)
    >>> meter.add(6, penalty=3.0)
    >>> meter.read()
    {'penalty': 2.5}
    """

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._samples: dict[str, int] = {}

    def add(self, samples: int, **values: Tensor | float) -> None:
        """Count means over so many samples."""
        for name, value in values.items():
            number = float(value.detach()) if isinstance(value, Tensor) else value
            self._sums[name] = self._sums.get(name, 0.0) + samples * number
            self._samples[name] = self._samples.get(name, 0) + samples

    def read(self) -> dict[str, float]:
        """The means so far, and begin anew: a phase that adds nothing shows nothing."""
        means = {name: total / max(1, self._samples[name]) for name, total in self._sums.items()}
        self._sums, self._samples = {}, {}
        return means

    def state_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"sums": self._sums, "samples": self._samples}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take ``state_dict`` back."""
        self._sums, self._samples = dict(state["sums"]), dict(state["samples"])
