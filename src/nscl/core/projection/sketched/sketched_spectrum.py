"""From a sketch to eigenvalues, weights and a thin projection.

A soft rule takes what a sketch has lost at its mean. A hard rule frees whole directions, and lost
energy may lie in any of them: it frees nothing unless all that was lost is below the noise floor.
Then a sketch frees exactly what the full covariance does. Groups of one layer share the smallest
weight of what is not known, so that one number per layer is enough.
"""

import torch
from torch import Tensor

from nscl.core.covariance.low_rank import Sketch
from nscl.core.projection.low_rank_projector import Projection, columns_of
from nscl.core.projection.rules import Rule, default_floor
from nscl.core.projection.spectrum import Spectrum


def decompose_sketch(sketch: Sketch, rule: Rule, *, tasks: int = 1) -> tuple[Spectrum, Tensor]:
    """Spectrum of all ``d`` directions, and the eigenvectors (columns) of the known ones.

    >>> from nscl.core.covariance.low_rank import sketch_of
    >>> from nscl.core.projection.rules import Energy
    >>> rows = torch.diag(torch.tensor([9.0, 3.0, 0.1])).double()[None]
    >>> spectrum, vectors = decompose_sketch(sketch_of(rows, rank=2), Energy(0.05))
    >>> vectors.shape, spectrum.free    # the smallest is 1e-4 of the energy, but it was lost
    (torch.Size([1, 3, 2]), 0.0)
    """
    values, vectors = sketched_eigenpairs(sketch)
    floor = default_floor(values).expand_as(values)
    weights = rule(values, tasks=tasks, floor=floor)
    if not rule.soft:
        weights = weights.masked_fill((sketch.rest > floor[:, 0])[:, None], 0.0)
    if vectors.shape[-1] < sketch.width:
        weights = weights.clamp_max(float(weights[:, 0].min()))
    return Spectrum(values, weights, floor), vectors


def sketched_eigenpairs(sketch: Sketch) -> tuple[Tensor, Tensor]:
    """All ``d`` eigenvalues, ascending, and the vectors of the known ones."""
    known, vectors = sketch.eigenpairs()
    others = sketch.rest[:, None].expand(-1, sketch.width - known.shape[1])
    return torch.cat([others, known + sketch.rest[:, None]], -1), vectors


def sketched_projection(vectors: Tensor, weights: Tensor) -> Projection:
    """The thin projection for vectors of the last weights only; all others share one.

    With ``w`` the weights of the known directions and ``w₀`` that of the others it is
    ``w₀·(D − D U diag(1 − w/w₀) Uᵀ)``.

    >>> P = sketched_projection(torch.eye(3)[None, :, 2:], torch.tensor([[1.0, 1.0, 0.0]]))
    >>> D = torch.ones(1, 1, 3); P.apply_(D); D
    tensor([[[1., 1., 0.]]])
    """
    others = weights.shape[-1] - vectors.shape[-1]
    rest, known = float(weights[0, 0]), weights[:, others:]
    if rest == 0.0:
        return Projection(columns_of(vectors, known), removes=False)
    return Projection(columns_of(vectors, 1.0 - known / rest), removes=True, scale=rest)
