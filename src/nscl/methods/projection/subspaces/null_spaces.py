"""Null spaces combined by what they share: the mathematics of AdNS.

The left singular vectors of two bases side by side, ``[B, U]``, are the eigenvectors of the sum of
their projectors ``BBᵀ + UUᵀ``, with the squared singular values: 2 for directions both have. So the
combination is a spectrum with a rule of its own, and needs no basis written out.

Specification: docs/methods.md, "AdNS".
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nscl.core.projection.low_rank_projector import Projection
from nscl.core.projection.rules import NotLiteral
from nscl.core.projection.spectrum import decompose


@dataclass(frozen=True)
class Shared(NotLiteral):
    """Free the ``⌊m/2 · part⌋`` directions that two spaces of ``m`` dimensions together share most.

    The eigenvalues are those of the sum of two projectors, so they add up to m.

    >>> Shared(0.9)(torch.tensor([1.0, 2.0, 1.0]))
    tensor([0., 1., 0.])
    """

    part: float = 0.9
    soft: ClassVar[bool] = False

    def __call__(
        self, eigenvalues: Tensor, *, tasks: int = 1, floor: Tensor | float | None = None
    ) -> Tensor:
        """Count dimensions by the trace, then keep the largest eigenvalues."""
        dimensions = eigenvalues.sum(-1, keepdim=True).round()
        count = (dimensions / 2 * self.part).floor()
        rank = eigenvalues.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
        return (rank < count).to(eigenvalues.dtype)


def threshold(task: int, tasks: int, *, first: float, last: float) -> float:
    """AdNS's ``a`` at the end of a task: from ``first`` in equal steps towards ``last``.

    It would reach ``last`` at the end of the last task, after which nothing is remembered.

    >>> [round(threshold(i, 10, first=160.0, last=150.0), 2) for i in (0, 8)]
    [160.0, 151.11]
    """
    return first - (first - last) * task / max(1, tasks - 1)


def combine_null_spaces(before: Tensor, now: Tensor, *, part: float) -> tuple[Tensor, Tensor]:
    """Eigenvectors of the sum of two projectors ``[groups, d, d]`` and the weight of each."""
    spectrum, vectors = decompose(before + now, Shared(part))
    return vectors, spectrum.weights


def projector(projection: Projection) -> Tensor:
    """A hard projection written out, ``[groups, d, d]``, float64; a scale is taken off again.

    With ``S = s·P``: ``tr S = s·k`` and ``‖S‖² = s²·k``, so s can be computed.
    """
    groups, d = projection.basis.shape[:2]
    scaled = torch.eye(d, dtype=torch.float64).repeat(groups, 1, 1)
    projection.to(device=scaled.device, dtype=scaled.dtype).apply_(scaled)
    trace = scaled.diagonal(dim1=-2, dim2=-1).sum(-1)
    size = scaled.square().sum((-2, -1))
    return scaled * torch.where(size > 0, trace / size, 0.0)[:, None, None]
