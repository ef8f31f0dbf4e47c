"""What is left of a call without its padded rows.

Query, key and value are fed the same tensor, one after the other. They are given the same selection
of it too, so that their sums can be recognised as common.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from nscl.core.covariance.convolution.unfold import Patches
from nscl.core.covariance.observations import InputRows, Observation, selected


class Selection:
    """Selects rows, and remembers the last selection for the next layer."""

    def __init__(self) -> None:
        self._given: Tensor | None = None  # kept: its memory must stay taken
        self._version = 0
        self._real: Tensor | None = None
        self._parts: Sequence[Observation] = ()

    def of(self, seen: Observation, real: Tensor | None) -> Sequence[Observation]:
        """The parts of a call that count (``real``, one bool per row; None: all of it)."""
        if real is None or isinstance(seen, Patches):
            return list(selected(seen, real))  # patches are many: they are not kept
        given = seen.values if isinstance(seen, InputRows) else seen.ids
        if not self._is_of(given, real):
            self._given, self._version, self._real = given, given._version, real
            self._parts = list(selected(seen, real))
        return self._parts

    def _is_of(self, given: Tensor, real: Tensor) -> bool:
        last = self._given
        if last is None or self._real is None or given.is_inference():
            return False
        same = (last.data_ptr(), last.shape, last.stride(), last.dtype, last.device)
        here = (given.data_ptr(), given.shape, given.stride(), given.dtype, given.device)
        unchanged = self._version == last._version == given._version
        return same == here and unchanged and torch.equal(real, self._real)
