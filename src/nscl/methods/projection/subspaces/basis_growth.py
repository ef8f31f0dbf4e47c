"""Bases of old inputs that only grow: the mathematics of GPM and SGP.

With ``C`` the second moments of a task's rows and ``M`` the orthonormal basis so far, the squared
singular values of what ``M`` leaves of the rows are the eigenvalues of ``(I − MMᵀ) C (I − MMᵀ)``.
So "the fewest new columns that bring the explained energy to a threshold" is the rule ``Energy`` on
that matrix, with all of C's energy as the budget's measure. Tensors in, tensors out; every matrix
is ``[groups, ·, ·]`` and groups with fewer columns are filled up with zeros.

Specification: docs/methods.md, "GPM".
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nscl.core.projection.low_rank_projector import Projection
from nscl.core.projection.rules import Energy, NotLiteral
from nscl.core.projection.spectrum import Spectrum, decompose


@dataclass(frozen=True)
class Unexplained(NotLiteral):
    """Free as many directions of a residual as have ``share`` of the energy of *all* rows.

    >>> Unexplained(0.03, (10.0,))(torch.tensor([[1.0, 9.0]]))  # singular values 1 and 3
    tensor([[0., 0.]])
    """

    share: float
    energy: tuple[float, ...]  # of all rows, per group
    soft: ClassVar[bool] = False

    def __call__(
        self, eigenvalues: Tensor, *, tasks: int = 1, floor: Tensor | float | None = None
    ) -> Tensor:
        """Where the residual has less than that altogether, nothing more is held."""
        weights = torch.ones_like(eigenvalues)
        for group, values in enumerate(eigenvalues):
            left = float(values.sum())
            if left > self.share * self.energy[group]:
                rule = Energy(self.share * self.energy[group] / left)
                low = floor[group] if isinstance(floor, Tensor) else floor
                weights[group] = rule(values, floor=low)
        return weights


@dataclass(frozen=True)
class Growth:
    """A basis, and an orthonormal frame of the space that contains its directions."""

    basis: Tensor  # [groups, features, columns]: the old columns, then the new ones
    frame: Tensor  # [groups, features, features]: has all its directions among its columns


def grow(
    basis: Tensor | None,
    covariance: Tensor,
    *,
    threshold: float,
    noise: Tensor | float = 0.0,
    release: bool = False,
) -> Growth:
    """Add the fewest directions with which the basis explains ``threshold`` of the energy.

    A basis that is given must be ``compact``. ``release`` stops one direction short when a basis
    begins, as the authors' code does.

    >>> C = torch.diag(torch.tensor([9.0, 1.0], dtype=torch.float64))[None]
    >>> [grow(None, C, threshold=0.97, release=r).basis.shape[-1] for r in (False, True)]
    [2, 1]
    """
    old = covariance.new_zeros(*covariance.shape[:-1], 0) if basis is None else basis
    energy = covariance.diagonal(dim1=-2, dim2=-1).sum(-1)
    rule = Unexplained(1.0 - threshold, tuple(energy.tolist()))
    spectrum, vectors = decompose(_residual(old, covariance, energy), rule, noise=noise)
    counts = (spectrum.weights == 0).sum(-1)
    if release and basis is None:
        counts = (counts - 1).clamp_min(0)
    most = int(counts.max())
    wanted = torch.arange(most) < counts[:, None]  # eigenvalues ascend: the last come first
    new = vectors.flip(-1)[..., :most] * wanted[:, None]
    for _ in range(2):  # the second time takes away what rounding left the first time
        new = F.normalize(_without(old, new), dim=-2)
    taken = (old != 0).any(-2, keepdim=True)
    vectors[..., : old.shape[-1]] = torch.where(taken, old, vectors[..., : old.shape[-1]])
    return Growth(torch.cat([old, new], -1), vectors)


def _residual(basis: Tensor, covariance: Tensor, energy: Tensor) -> Tensor:
    """What a basis leaves of second moments; its own directions lie below zero, not at it.

    So they come first, apart from other directions in which the rows have nothing.
    """
    left = _without(basis, _without(basis, covariance).mT)
    return left - torch.where(energy > 0, energy, 1.0)[:, None, None] * (basis @ basis.mT)


def _without(basis: Tensor, matrix: Tensor) -> Tensor:
    return matrix - basis @ (basis.mT @ matrix)


def direction_importances(strengths: Tensor, c: float) -> Tensor:
    """SGP's map of singular values ``[groups, columns]`` to (0, 1]: ``(c+1)·s / (c·s + s_max)``.

    >>> direction_importances(torch.tensor([[2.0, 1.0]]), 10.0)
    tensor([[1.0000, 0.9167]])
    """
    if strengths.shape[-1] == 0:
        return strengths
    largest = strengths.amax(-1, keepdim=True)
    scaled = (c + 1.0) * strengths / (c * strengths + largest)
    return torch.where(largest > 0, scaled, 0.0)


def strengths(basis: Tensor, covariance: Tensor) -> Tensor:
    """Root mean square of the rows along every column of a basis, ``[groups, columns]``.

    Along eigenvectors of a residual these are its singular values; along older columns they are
    SGP's ``√ Σ_j (m·u_j)² s_j²`` with the rows projected onto the basis first. A common factor
    (the number of rows) does not matter to ``importances``.
    """
    return ((covariance @ basis) * basis).sum(-2).clamp_min(0.0).sqrt()


def compact(basis: Tensor) -> Tensor:
    """Move the zeros of groups with fewer columns to the end, and cut off what is zero in all."""
    empty = (basis == 0).all(-2)
    order = empty.to(torch.uint8).argsort(dim=-1, stable=True)
    kept = order[:, : int((~empty).sum(-1).max()) if basis.shape[-1] else 0]
    return basis.gather(-1, kept[:, None].expand(-1, basis.shape[-2], -1)).contiguous()


def spectrum_of(frame: Tensor, covariance: Tensor, projection: Projection) -> Spectrum:
    """What a projection leaves of each direction of a frame, beside the rows' energy along it."""
    kept = frame.mT.clone()
    projection.to(device=kept.device, dtype=kept.dtype).apply_(kept)
    weights = (kept * frame.mT).sum(-1).clamp(0.0, 1.0)
    energies, order = ((covariance @ frame) * frame).sum(-2).clamp_min(0.0).sort(-1)
    return Spectrum(energies, weights.gather(-1, order), torch.zeros_like(energies))
