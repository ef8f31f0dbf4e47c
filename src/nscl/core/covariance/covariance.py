"""Second moments of a layer's input rows as they are kept between passes: packed float64 sums."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from nscl.core.covariance.packed import unpack


class Stored(Protocol):
    """A tensor that may be on disk until it is needed."""

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

    The sums are packed (``packed.py``), or a count per token for an embedding.
    """

    stored: Tensor | Stored  # float64
    rows: int
    tasks: int
    noise: float = 0.0  # variance of rounding in an entry ij, relative to C_ii·C_jj

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

    def diagonal(self) -> Tensor:
        """Mean square of each feature, ``[groups, d]``."""
        return self.dense().diagonal(dim1=-2, dim2=-1)

    def times(self, matrix: Tensor) -> Tensor:
        """``matrix @ C`` for ``[groups, ·, d]``."""
        return torch.bmm(matrix, self.dense())

    def rounding(self, dense: Tensor, features: int) -> Tensor:
        """Rounding ``r [groups, d]`` of ``dense``: √(r_i·r_j) in entry ij; constants have none.

        A product of two features is rounded in proportion to both, so a loud feature makes the
        quiet ones beside it no less exact.
        """
        loudness = dense.diagonal(dim1=-2, dim2=-1).clone()
        loudness[:, features:] = 0.0
        return loudness.mul_(math.sqrt(self.noise))

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


def quadratic(
    covariance: Covariance,
    weight: Tensor,
    biases: Sequence[Tensor] = (),
    *,
    gradient: Covariance | None = None,
) -> float:
    """Mean over all remembered rows of ``‖row · [weight | biases]ᵀ‖²``, exactly.

    ``weight`` is ``[groups, out, features]`` (``[tokens, width]`` for an embedding). With the
    second moments G of output gradients it is ``tr(G W C Wᵀ)``.
    """
    if covariance.is_diagonal:
        wide = weight.double().cpu()
        weighed = wide if gradient is None else gradient.times(wide[None])[0]
        return float((covariance.sums * (weighed * wide).sum(-1)).sum()) / covariance.rows
    stacked = torch.cat([weight, *(bias[..., None] for bias in biases)], -1).double().cpu()
    weighed = stacked if gradient is None else gradient.times(stacked.mT).mT
    # A square; below zero is rounding.
    return max(0.0, float((covariance.times(stacked) * weighed).sum()))
