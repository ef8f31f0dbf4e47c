"""Rows of a wide layer while data pass through it: a buffer that is shrunk whenever it is full.

The buffer has twice as many rows as the sketch may keep. So each row costs a product with all rows
of the buffer, ``rank × width`` numbers, instead of one with all features. Everything is float64:
there is no rounding of products to look for.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from nscl.core.covariance.accumulator import CovarianceAccumulator
from nscl.core.covariance.convolution.unfold import Patches
from nscl.core.covariance.low_rank import Sketch, is_sketched, shrink
from nscl.core.covariance.observations import InputRows, Observation, TokenIds
from nscl.core.projection.precision import full_precision


class SketchAccumulator:
    """Sketches the rows of one block of weights during one ``remember`` pass."""

    def __init__(
        self, *, groups: int, features: int, constants: int, device: torch.device, rank: int
    ) -> None:
        self.features, self._rank = features, rank
        # float64 does not exist on Apple's GPUs.
        device = torch.device("cpu") if device.type == "mps" else device
        shape = (groups, 2 * rank, features + constants)
        self._buffer = torch.zeros(shape, dtype=torch.float64, device=device)
        self._filled = 0
        self._lost, self._bound = (self._buffer.new_zeros(groups) for _ in range(2))
        self.rows = 0
        self.noise = 0.0

    def add(self, seen: Observation, constant: int | None) -> bool:
        """Add one call; ``constant`` is the column of this call's bias. False if not finite."""
        if isinstance(seen, TokenIds):
            raise TypeError("tokens are counted, not multiplied: a block has one layout")
        with full_precision(self._buffer.device.type):
            return all([self._add_rows(chunk, constant) for chunk in _chunks(seen)])

    def _add_rows(self, rows: Tensor, constant: int | None) -> bool:
        if not torch.isfinite(rows).all():
            return False  # the pass is lost: an eigenvalue of infinity cannot be computed
        self.rows += rows.shape[1]
        while rows.shape[1]:
            if self._filled == self._buffer.shape[1]:
                self._shrink()
            room = self._buffer.shape[1] - self._filled
            self._write(rows[:, :room], constant)
            rows = rows[:, room:]
        return True

    def _write(self, rows: Tensor, constant: int | None) -> None:
        place = self._buffer[:, self._filled : self._filled + rows.shape[1]]
        place[..., : self.features] = rows
        place[..., self.features :] = 0.0
        if constant is not None:
            place[..., self.features + constant] = 1.0
        self._filled += rows.shape[1]

    def _shrink(self) -> None:
        kept, lost, cut = shrink(self._buffer[:, : self._filled], self._rank)
        self._lost, self._bound = self._lost + lost, self._bound + cut
        self._filled = kept.shape[1]
        self._buffer[:, : self._filled] = kept

    def sketch(self) -> Sketch:
        """The sketch of everything added."""
        self._shrink()
        rows = self._buffer[:, : self._filled].to("cpu", copy=True)
        return Sketch(rows, self._lost.cpu(), self._bound.cpu(), self._rank, rows.shape[-1])


def _chunks(seen: InputRows | Patches) -> Iterable[Tensor]:
    if isinstance(seen, InputRows):
        return [seen.values]
    # A head for regions may be called without any image.
    return seen.unfolded() if len(seen.images) else []


def new_sums(
    *,
    groups: int,
    features: int,
    constants: int,
    device: torch.device,
    rank: int | None,
    exact: bool = False,
) -> CovarianceAccumulator | SketchAccumulator:
    """A sketch for what is wider than ``rank``, full sums for all else."""
    if rank is not None and is_sketched(features + constants, rank):
        return SketchAccumulator(
            groups=groups, features=features, constants=constants, device=device, rank=rank
        )
    return CovarianceAccumulator(
        groups=groups, features=features, constants=constants, device=device, exact=exact
    )
