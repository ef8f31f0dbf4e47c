"""Frequent Directions: a few rows that stand for all the rows of a very wide layer.

A full covariance has a number for each pair of features. The sketch keeps ``rank`` rows B instead
of all rows A ever seen. New rows are stacked under B. Once there are twice as many as may stay, the
square of the next singular value after ``rank`` is taken from the squares of all. Summed over all
of these shrinks that is δ, and with C = AᵀA (Liberty 2013; Ghashami et al. 2016)

    0 ≼ C − BᵀB ≼ δ·I,    δ ≤ (tr C − the k largest eigenvalues of C) / (rank − k),  k < rank.

Nothing is lost of data that have at most ``rank`` directions. Otherwise the energy ``tr(C − BᵀB)``
that was lost is known, but not where. It is counted as spread evenly over all directions:

    C ≈ BᵀB + rest·I,    rest = tr(C − BᵀB) / d ≤ δ,

which has the trace of C. So what is no longer known in detail is still held on average.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nscl.core.projection.spectrum import eigenpairs


@dataclass(frozen=True)
class Sketch:
    """What is kept of the sum of outer products of rows ``[groups, ·, width]``.

    >>> rows = torch.tensor([[[3.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0]]]).double()
    >>> found = sketch_of(rows, rank=2)
    >>> found.bound, found.lost          # 1 is taken from 9, 4 and 1
    (tensor([1.], dtype=torch.float64), tensor([3.], dtype=torch.float64))
    >>> (found.rows.mT @ found.rows).diagonal(dim1=-2, dim2=-1).round(decimals=9)
    tensor([[8., 3., 0.]], dtype=torch.float64)
    """

    rows: Tensor  # B [groups, at most rank, width], float64
    lost: Tensor  # [groups]: tr(C − BᵀB)
    bound: Tensor  # [groups]: δ
    rank: int
    width: int  # over which `lost` is spread

    @classmethod
    def empty(cls, groups: int, width: int, rank: int) -> "Sketch":
        """The sketch of no rows at all."""
        nothing = torch.zeros(groups, dtype=torch.float64, device="cpu")
        return cls(nothing.new_zeros(groups, 0, width), nothing, nothing, rank, width)

    @property
    def rest(self) -> Tensor:
        """The mean energy per direction that is no longer known in detail, ``[groups]``."""
        return self.lost / self.width

    def plus(self, other: "Sketch") -> "Sketch":
        """The sketch of both sets of rows together; losses and bounds add up.

        It depends on the order of the two only within its bound.
        """
        rows, lost, cut = shrink(torch.cat([self.rows, other.rows], 1), self.rank)
        lost, bound = self.lost + other.lost + lost, self.bound + other.bound + cut
        return replace(self, rows=rows, lost=lost, bound=bound)

    def divided(self, count: float) -> "Sketch":
        """The same of a mean instead of a sum."""
        rows = self.rows / count**0.5
        return replace(self, rows=rows, lost=self.lost / count, bound=self.bound / count)

    def restricted(self, features: Sequence[int]) -> "Sketch":
        """The sketch of some of the features: what is spread over a direction stays the same."""
        index = torch.tensor(features, device=self.rows.device)
        share = len(features) / self.width
        return replace(
            self, rows=self.rows[..., index], lost=self.lost * share, width=len(features)
        )

    def times(self, matrix: Tensor) -> Tensor:
        """``matrix @ (BᵀB + rest·I)`` for ``[groups, ·, width]``, without the matrix itself."""
        known = (matrix @ self.rows.mT) @ self.rows
        return known + self.rest[:, None, None] * matrix

    def diagonal(self) -> Tensor:
        """The diagonal of ``BᵀB + rest·I``, ``[groups, width]``."""
        return self.rows.square().sum(1) + self.rest[:, None]

    def eigenpairs(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues of BᵀB, ascending, and their orthonormal vectors ``[groups, width, ·]``.

        By a QR decomposition: the vectors of small eigenvalues stay orthogonal to those of large.
        """
        Q, R = torch.linalg.qr(self.rows.mT)
        left, singular, _ = torch.linalg.svd(R, full_matrices=False)
        return singular.square().flip(-1), (Q @ left).flip(-1)


def is_sketched(width: int, rank: int | None) -> bool:
    """Whether a side of a layer that has this many features is sketched."""
    return rank is not None and width > rank


def sketch_of(rows: Tensor, rank: int) -> Sketch:
    """The sketch of rows that are all there at once."""
    kept, lost, cut = shrink(rows, rank)
    return Sketch(kept, lost, cut, rank, rows.shape[-1])


def shrink(rows: Tensor, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """At most ``rank`` rows for ``[groups, n, width]``; the energy lost, and what each one lost.

    >>> shrink(torch.eye(3).double()[None], rank=3)[1]
    tensor([0.], dtype=torch.float64)
    """
    if rows.shape[1] <= rank:
        nothing = rows.new_zeros(rows.shape[0])
        return rows, nothing, nothing
    squares, turned = _turned(rows)
    # A square that rounding alone could leave is no direction of the data.
    floor = rows.shape[1] * torch.finfo(rows.dtype).eps * squares[:, :1]
    squares = squares.where(squares > floor, 0.0)
    cut = squares[:, rank : rank + 1]  # empty if there are fewer directions than that
    cut = cut if cut.shape[1] else squares.new_zeros(len(squares), 1)
    lost = torch.minimum(squares, cut).sum(-1)
    kept = (squares - cut).clamp_min(0.0)
    columns = min(rank, int((kept > 0).sum(-1).max()))
    scale = (kept / squares.where(squares > 0, 1.0)).sqrt()
    return scale[:, :columns, None] * turned[:, :columns], lost, cut[:, 0]


def _turned(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Squared singular values, descending, and rows ``S Vᵀ`` that have the same outer products."""
    if rows.shape[1] <= rows.shape[2]:
        squares, vectors = eigenpairs(rows @ rows.mT)
        return squares.flip(-1), vectors.flip(-1).mT @ rows
    squares, vectors = eigenpairs(rows.mT @ rows)
    return squares.flip(-1), squares.flip(-1).sqrt()[..., None] * vectors.flip(-1).mT
