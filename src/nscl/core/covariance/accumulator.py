"""Sums of outer products while data pass through a layer.

Everything a layer sees is rows ``[groups, rows, features]``; a bias is one more feature that is
always 1. Products are formed in the features' own precision (float32 for half precision, float64
where a rule asks for it), a chunk of rows at a time, and summed in float64. How much rounding that
leaves is measured alongside, on the diagonal of some calls, where the exact value costs little: it
shows later which eigenvalues are only noise. Repeated rows (padding, a constant background) are
rounded alike every time, so no formula knows.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from nscl.core.covariance.convolution.correlation import CorrelationSums, gram, is_cheaper
from nscl.core.covariance.convolution.unfold import Geometry, Ints, Patches, unfold
from nscl.core.covariance.observations import InputRows, Observation, TokenIds
from nscl.core.covariance.packed import pack
from nscl.core.projection.precision import full_precision

ROWS = 1 << 14  # rows multiplied at a time
BAND = 64  # a matrix product with fewer lines than this is slow
FEW = 1 << 17  # numbers squared at a time
MEASURED = 8  # the rounding of the first 8 calls is measured, then that of every 8th
ENOUGH = 4  # rows per channel before they are multiplied
WAITING = 1 << 21  # numbers (8 MiB) of images that may wait: with many sizes none gets enough
SIZES = 4  # input sizes of a convolution kept apart; data of many sizes would fill the memory


Key = tuple[Geometry, Ints, int | None]  # what is multiplied together: one size, one bias


class CovarianceAccumulator:
    """Adds up the rows of one block of weights during one ``remember`` pass."""

    def __init__(
        self,
        *,
        groups: int,
        features: int,
        constants: int,
        device: torch.device,
        exact: bool = False,
    ) -> None:
        self.features, self._exact = features, exact
        self._shape = (groups, features + constants, features + constants)
        # float64 does not exist on Apple's GPUs.
        self._device = torch.device("cpu") if device.type == "mps" else device
        self._dense: Tensor | None = None  # convolutions by lags need it only at the end
        self._is_half = False  # left of the diagonal bands nothing has been added
        self._correlated: dict[Key, CorrelationSums] = {}
        self._waiting: dict[Key, list[Tensor]] = {}
        self._numbers = 0  # of images that wait
        self.rows = 0
        self._calls = 0
        # Per feature, over the measured calls (fewer rows: rather too much noise than too little):
        # exact sum of squares, error of the rounded one, variance expected by chance.
        self._diagonal = torch.zeros(3, groups, features, dtype=torch.float64, device=self._device)

    @property
    def noise(self) -> float:
        """Variance of the rounding in an entry ij, relative to the diagonal's ii and jj."""
        self._stop_waiting()
        energy, error, variance = self._diagonal
        alive = energy > 0
        relative = ((error.square() + variance) / energy.square()).where(alive, 0.0)
        return float((relative.sum(-1) / alive.sum(-1).clamp_min(1)).max())

    def add(self, seen: Observation, constant: int | None) -> bool:
        """Add one call; ``constant`` is the column of this call's bias. False if not finite."""
        if isinstance(seen, TokenIds):
            raise TypeError("tokens are counted, not multiplied: a block has one layout")
        with full_precision(self._device.type):  # a model may open autocast around its layers
            return self._add(seen, constant)

    def _add(self, seen: InputRows | Patches, constant: int | None) -> bool:
        if isinstance(seen, InputRows):
            self.rows += seen.rows
            chunks = [self._here(chunk) for chunk in seen.values.split(ROWS, dim=1)]
            return all([self._add_rows(c, partial(_energy, c, (1,)), constant) for c in chunks])
        if len(seen.images) == 0:
            return True  # called without an image, as a head for regions of which there are none
        here = Patches(self._here(seen.images), seen.geometry)
        self.rows += here.rows
        if is_cheaper(here):
            return self._add_correlated(here, constant)
        return all([self._add_unfolded(few, constant) for few in here.split(ROWS)])

    def _here(self, values: Tensor) -> Tensor:
        """Where sums are kept, in the precision of products: float32 for what is shorter."""
        here = values.to(self._device)
        if self._exact:
            return here.double()
        return here if here.dtype in (torch.float32, torch.float64) else here.float()

    def _add_unfolded(self, seen: Patches, constant: int | None) -> bool:
        def energy() -> Tensor:
            return unfold(_energy(seen.images, (0,))[None], seen.geometry).sum(1)

        return self._add_rows(unfold(seen.images, seen.geometry), energy, constant)

    def _add_rows(self, rows: Tensor, energy: Callable[[], Tensor], constant: int | None) -> bool:
        d, total, diagonals = self.features, self._matrix(), []
        for a, b in self._bands():
            product = gram(rows[..., a:b], rows[..., a:])
            total[:, a:b, a:d] += product
            diagonals.append(product.diagonal(dim1=-2, dim2=-1))
        if constant is not None:
            total[:, :d, d + constant] += rows.sum(1, dtype=torch.float64)
            total[:, d + constant, d + constant] += rows.shape[1]
        self._is_half = True
        return self._note(torch.cat(diagonals, -1), energy, rows.dtype)

    def _bands(self) -> list[tuple[int, int]]:
        """Bands of lines, of which only the part right of the diagonal is multiplied out."""
        width = max(BAND, -(-self.features // 4))
        starts = range(0, self.features, width)
        return [(a, min(a + width, self.features)) for a in starts]

    def _add_correlated(self, seen: Patches, constant: int | None) -> bool:
        """Wait for enough rows: otherwise adding up the product costs more than the product."""
        key = (seen.geometry, seen.size, constant)
        images = seen.images
        waiting = [*self._waiting.pop(key, []), images]
        self._numbers -= sum(some.numel() for some in waiting[:-1])
        if sum(Patches(some, seen.geometry).rows for some in waiting) >= ENOUGH * images.shape[1]:
            return self._multiply(key, torch.cat(waiting) if len(waiting) > 1 else images)
        waiting[-1] = images.clone()  # whose owner may write over it
        self._waiting[key] = waiting
        self._numbers += sum(some.numel() for some in waiting)
        if self._numbers > WAITING:
            self._stop_waiting()
        flat = images.reshape(-1)
        return bool(torch.isfinite(flat @ flat))

    def _multiply(self, key: Key, images: Tensor) -> bool:
        geometry, _, constant = key
        if key not in self._correlated:
            if len(self._correlated) == SIZES:
                self._assemble()
            column = constant is not None
            self._correlated[key] = CorrelationSums(Patches(images, geometry), column=column)
        diagonals = self._correlated[key].add(Patches(images, geometry))
        diagonal = torch.stack(diagonals).sum(0, dtype=torch.float64)
        each = geometry.positions  # of the kernel sees its channel

        def energy() -> Tensor:
            exact = _energy(images, (0, *range(2, images.ndim))).view(diagonal.shape)
            return exact.repeat_interleave(each, -1)

        return self._note(diagonal.repeat_interleave(each, -1), energy, images.dtype)

    def _stop_waiting(self) -> None:
        with full_precision(self._device.type):
            while self._waiting:
                key, waiting = self._waiting.popitem()
                self._add_late(key, torch.cat(waiting))
        self._numbers = 0

    def _add_late(self, key: Key, images: Tensor) -> None:
        """A few rows of one more size are unfolded: the sums of other sizes stay as they are."""
        geometry, _, constant = key
        if key in self._correlated or len(self._correlated) < SIZES:
            self._multiply(key, images)
            return
        for few in Patches(images, geometry).split(ROWS):
            self._add_unfolded(few, constant)

    def _matrix(self) -> Tensor:
        if self._dense is None:
            self._dense = torch.zeros(self._shape, dtype=torch.float64, device=self._device)
        return self._dense

    def _note(self, diagonal: Tensor, energy: Callable[[], Tensor], dtype: torch.dtype) -> bool:
        """Compare the diagonal with the exact one: other entries are rounded in the same way."""
        self._calls += 1
        if self._calls <= MEASURED or self._calls % MEASURED == 0:
            exact = energy()
            chance = torch.finfo(dtype).eps * exact
            self._diagonal += torch.stack([exact, diagonal.double() - exact, chance.square()])
        return bool(torch.isfinite(diagonal).all())

    def _assemble(self) -> None:
        d = self.features
        for (_, _, constant), sums in self._correlated.items():
            matrix = sums.matrix()
            if self._dense is None and matrix.shape == self._shape:
                self._dense = matrix
                continue
            total = self._matrix()
            total[:, :d, :d] += matrix
            if constant is not None:
                total[:, :d, d + constant] += sums.column()
                total[:, d + constant, d + constant] += sums.rows
        self._correlated.clear()

    def total(self) -> Tensor:
        """Packed sums of everything added."""
        self._stop_waiting()
        self._assemble()
        d, total = self.features, self._matrix()
        for a, b in self._bands() if self._is_half else ():
            total[:, b:d, a:b] = total[:, a:b, b:d].mT
        total[:, d:, :d] = total[:, :d, d:].mT
        return pack(total).cpu()


def _energy(values: Tensor, dims: Ints) -> Tensor:
    """Sum of squares over some dimensions in float64, a few at a time to stay in the cache."""
    total = torch.zeros((), dtype=torch.float64, device=values.device)
    few = max(1, FEW * values.shape[dims[0]] // max(1, values.numel()))
    for chunk in values.split(few, dims[0]):
        total = total + chunk.double().square().sum(dims)
    return total
