"""Second moments of a layer's input rows: running sums during a pass, packed sums between passes.

Everything a layer sees is rows ``[groups, rows, features]``; a bias is one more feature that is
always 1. Products are formed in the features' own precision (float32 for half precision), a chunk
of rows at a time, and summed in float64. How much rounding that leaves is measured alongside, on
the diagonal, where the exact value costs little: it tells later which eigenvalues are only noise.
Repeated rows (padding, a constant background) are rounded alike every time, so no formula knows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from nscl.core.lagged import LaggedSums, gram, is_cheaper
from nscl.core.patches import Geometry, Ints, Patches
from nscl.core.symmetric import pack, unpack

ROWS = 1 << 14  # rows multiplied at a time
FEW = 1 << 17  # numbers squared at a time
SIZES = 4  # input sizes of a convolution kept apart; data of many sizes would fill the memory


@dataclass(frozen=True)
class Rows:
    """Feature rows ``[groups, rows, features]`` of one call of a layer."""

    values: Tensor


@dataclass(frozen=True)
class Tokens:
    """Indices looked up by one call of an embedding."""

    ids: Tensor


Observation = Rows | Patches | Tokens


def averaged(seen: Observation) -> Observation:
    """The mean over a batch, as the authors' script takes it: maps keep their positions."""
    if isinstance(seen, Patches):
        return Patches(seen.images.mean(0, keepdim=True), seen.geometry)
    return Rows(seen.values.mean(1, keepdim=True)) if isinstance(seen, Rows) else seen


class Stored(Protocol):
    """A tensor that may lie on disk until it is asked for."""

    @property
    def nbytes(self) -> int:
        """Its size."""
        ...

    def load(self) -> Tensor:
        """Bring it into memory."""
        ...


@dataclass(frozen=True)
class Covariance:
    """What is kept of all rows a layer has seen: their sum of outer products, and how many.

    The sums are packed (``symmetric.py``), or a count per token for an embedding.
    """

    stored: Tensor | Stored  # float64
    rows: int
    tasks: int
    noise: float = 0.0  # variance of rounding in an entry, relative to the largest on the diagonal

    @property
    def sums(self) -> Tensor:
        """Packed sums, read from disk if that is where they are."""
        return self.stored if isinstance(self.stored, Tensor) else self.stored.load()

    @property
    def nbytes(self) -> int:
        """Bytes of RAM held between passes."""
        return self.stored.nbytes if isinstance(self.stored, Tensor) else 0

    @property
    def is_diagonal(self) -> bool:
        """Whether this is an embedding's count per token."""
        return self.sums.ndim == 1

    def dense(self) -> Tensor:
        """Mean outer product ``[groups, d, d]``: the paper's uncentred covariance."""
        return unpack(self.sums) / self.rows

    def rounding(self, dense: Tensor, features: int) -> Tensor:
        """Variance of the rounding in an entry of ``dense``, per group: constants have none."""
        largest = dense.diagonal(dim1=-2, dim2=-1)[:, :features].amax(-1, keepdim=True)
        return self.noise * largest.square()

    def plus(self, other: "Covariance", *, same_tasks: bool = False) -> "Covariance":
        """The covariance of both sets of rows together (Algorithm 2's running mean)."""
        tasks = max(self.tasks, other.tasks) if same_tasks else self.tasks + other.tasks
        return replace(
            self,
            stored=self.sums + other.sums,
            rows=self.rows + other.rows,
            tasks=tasks,
            noise=max(self.noise, other.noise),
        )


class RunningSums:
    """Adds up the rows of one block of weights during one ``remember`` pass."""

    def __init__(self, *, groups: int, features: int, constants: int, device: torch.device) -> None:
        self.features = features
        self._shape = (groups, features + constants, features + constants)
        # float64 does not exist on Apple's GPUs.
        self._device = torch.device("cpu") if device.type == "mps" else device
        self._dense: Tensor | None = None  # convolutions by lags need it only at the end
        self._lagged: dict[tuple[Geometry, Ints, int | None], LaggedSums] = {}
        self.rows = 0
        # Per feature: exact sum of squares, error of the rounded one, variance expected by chance.
        self._diagonal = torch.zeros(3, groups, features, dtype=torch.float64, device=self._device)

    @property
    def noise(self) -> float:
        """Variance of the rounding in an entry, relative to the largest on the diagonal."""
        energy, error, variance = self._diagonal
        alive = energy > 0
        relative = ((error.square() + variance) / energy.square()).where(alive, 0.0)
        return float((relative.sum(-1) / alive.sum(-1).clamp_min(1)).max())

    def add(self, seen: Observation, constant: int | None) -> bool:
        """Add one call; ``constant`` is the column of this call's bias. False if not finite."""
        if isinstance(seen, Tokens):
            raise TypeError("tokens are counted, not multiplied: a block has one layout")
        if isinstance(seen, Patches) and is_cheaper(seen):
            return self._add_lagged(seen, constant)
        chunks = seen.unfolded() if isinstance(seen, Patches) else iter((seen.values,))
        return all([self._add_rows(chunk, constant) for chunk in chunks])

    def _add_rows(self, values: Tensor, constant: int | None) -> bool:
        d, finite, total = self.features, True, self._matrix()
        for chunk in values.split(ROWS, dim=1):
            rows = _products_in(chunk).to(self._device)
            product = gram(rows, rows)
            total[:, :d, :d] += product
            if constant is not None:
                total[:, :d, d + constant] += rows.sum(1, dtype=torch.float64)
                total[:, d + constant, d + constant] += rows.shape[1]
            diagonal = product.diagonal(dim1=-2, dim2=-1)
            finite &= self._note(diagonal, _energy(rows, (1,)), product.dtype)
            self.rows += rows.shape[1]
        return finite

    def _add_lagged(self, seen: Patches, constant: int | None) -> bool:
        key = (seen.geometry, seen.size, constant)
        if key not in self._lagged:
            if len(self._lagged) == SIZES:
                self._assemble()
            self._lagged[key] = LaggedSums(seen)
        images = _products_in(seen.images).to(self._device)
        diagonals = self._lagged[key].add(Patches(images, seen.geometry))
        self.rows += seen.rows
        diagonal = torch.stack(diagonals).sum(0, dtype=torch.float64)
        energy = _energy(images, (0, *range(2, images.ndim))).view(diagonal.shape)
        each = seen.geometry.positions  # of the kernel sees its channel
        wide, exact = (t.repeat_interleave(each, -1) for t in (diagonal, energy))
        return self._note(wide, exact, images.dtype)

    def _matrix(self) -> Tensor:
        if self._dense is None:
            self._dense = torch.zeros(self._shape, dtype=torch.float64, device=self._device)
        return self._dense

    def _note(self, diagonal: Tensor, energy: Tensor, dtype: torch.dtype) -> bool:
        """Compare a product's diagonal with the exact one: its other entries are rounded alike."""
        chance = torch.finfo(dtype).eps * energy
        self._diagonal += torch.stack([energy, diagonal.double() - energy, chance.square()])
        return bool(torch.isfinite(diagonal).all())

    def _assemble(self) -> None:
        d, total = self.features, self._matrix()
        for (_, _, constant), sums in self._lagged.items():
            total[:, :d, :d] += sums.matrix()
            if constant is not None:
                total[:, :d, d + constant] += sums.column()
                total[:, d + constant, d + constant] += sums.rows
        self._lagged.clear()

    def total(self) -> Tensor:
        """Packed sums of everything added."""
        self._assemble()
        d, total = self.features, self._matrix()
        total[:, d:, :d] = total[:, :d, d:].mT
        return pack(total).cpu()


class TokenCounts:
    """Counts how often each token of an embedding was looked up."""

    def __init__(self, features: int) -> None:
        self._counts = torch.zeros(features, dtype=torch.float64)
        self.rows = 0
        self.noise = 0.0

    def add(self, seen: Observation, constant: int | None) -> bool:
        """Add one call; an embedding has no bias."""
        if not isinstance(seen, Tokens):
            raise TypeError("an embedding is fed tokens: a block has one layout")
        ids = seen.ids.reshape(-1).cpu()
        self._counts += torch.bincount(ids, minlength=len(self._counts)).double()
        self.rows += ids.numel()
        return True

    def total(self) -> Tensor:
        """The counts."""
        return self._counts


def _products_in(rows: Tensor) -> Tensor:
    """Precision in which products are formed: float64 stays, all else is multiplied in float32."""
    return rows if rows.dtype in (torch.float32, torch.float64) else rows.float()


def _energy(values: Tensor, dims: Ints) -> Tensor:
    """Sum of squares over some dimensions in float64, a few at a time to stay in the cache."""
    total = torch.zeros((), dtype=torch.float64, device=values.device)
    few = max(1, FEW * values.shape[dims[0]] // max(1, values.numel()))
    for chunk in values.split(few, dims[0]):
        total = total + chunk.double().square().sum(dims)
    return total


def quadratic(covariance: Covariance, weight: Tensor, biases: Sequence[Tensor] = ()) -> float:
    """Mean over all remembered rows of ``‖row · [weight | biases]ᵀ‖²``, exactly.

    ``weight`` is ``[groups, out, features]`` (``[tokens, width]`` for an embedding).
    """
    if covariance.is_diagonal:
        energy = weight.double().square().sum(-1).cpu()
        return float((covariance.sums * energy).sum()) / covariance.rows
    stacked = torch.cat([weight, *(bias[..., None] for bias in biases)], -1).double().cpu()
    total = float((torch.bmm(stacked, unpack(covariance.sums)) * stacked).sum())
    return max(0.0, total) / covariance.rows  # a square; below zero is rounding
