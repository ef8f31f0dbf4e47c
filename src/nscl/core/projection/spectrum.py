"""From a covariance to the directions that are free: eigenvalues, noise floor, weights.

``eigh`` on the float64 matrix, of which one triangle is read: half the work of an SVD, orthonormal
vectors, ascending order. Tiny negative eigenvalues are rounding and are clamped at zero. Of what a
memory holds larger ones are an error (``strict``): the matrix comes from a damaged or edited file.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from nscl.core.projection.rules import Rule, default_floor
from nscl.errors import MemoryFileError

# Measured on float32 data of deficient rank (d = 24 … 384, 300 and 3,000 rows; signed, non-negative
# and whole numbers; repeated rows, repeated columns, constants; features equally loud, one of them
# 2¹⁰ times louder, or spread over 2²⁰): an unused direction had at most 1.5 times
# √d · Σ_i noise_i·v_i² beyond the float64 floor.
NOISE_MARGIN = 5.0
# Of the largest eigenvalue. Rounding left at most 1e-7 below zero: float32 products and a float32
# SVD, d = 384 and 800, the kinds of data above.
INDEFINITE = 1e-4


class IndefiniteError(ValueError):
    """Second moments with a negative eigenvalue that no rounding explains."""


class Named(Protocol):
    """A block, as errors name it."""

    @property
    def name(self) -> str:
        """Of its layer."""
        ...

    @property
    def way_out(self) -> str:
        """How to leave it out."""
        ...


@contextmanager
def explain_indefinite(block: Named) -> Iterator[None]:
    """Name the layer whose second moments cannot be those of any data."""
    try:
        yield
    except IndefiniteError as problem:
        raise MemoryFileError(
            f"the covariance or gradient of layer '{block.name}' {problem}: this memory was "
            f"damaged or edited after it was saved; {load_another(block)}"
        ) from problem


def load_another(block: Named | None) -> str:
    """The way out of a damaged memory."""
    left_out = "" if block is None else block.way_out
    return f"load another copy{left_out.replace('leave it free', 'go on without the layer')}"


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of one layer's covariance, ascending, and the weight the rule gives to each."""

    eigenvalues: Tensor  # float64 [groups, d]
    weights: Tensor  # float64 [groups, d]
    floor: Tensor  # float64 [groups, d]: what rounding alone may leave in each direction

    @property
    def features(self) -> int:
        """Number of directions, over all groups."""
        return self.eigenvalues.numel()

    @property
    def free(self) -> float:
        """Number of free directions: the sum of their weights."""
        return float(self.weights.sum())

    @property
    def share(self) -> float:
        """The paper's R: the share of the inputs' energy that lies in the freed directions."""
        total = float(self.eigenvalues.sum())
        return float((self.weights * self.eigenvalues).sum()) / total if total > 0 else 0.0

    @property
    def condition(self) -> float:
        """Largest eigenvalue over the smallest one above the noise, the worst group's."""
        alive = self.eigenvalues.masked_fill(self.eigenvalues <= self.floor, math.inf).amin(-1)
        ratio = self.eigenvalues.amax(-1) / alive
        return float(ratio.max()) if float(ratio.max()) > 0 else 1.0


def decompose(
    covariance: Tensor,
    rule: Rule,
    *,
    noise: Tensor | float = 0.0,
    tasks: int = 1,
    strict: bool = False,
) -> tuple[Spectrum, Tensor]:
    """Spectrum and eigenvectors (columns) of ``[groups, d, d]`` float64 covariances.

    ``noise [groups, d]`` is what rounding left of each feature (``Covariance.rounding``). Along an
    eigenvector v it amounts to ``Σ_i noise_i·v_i²``, up to a factor √d for the worst of many v.

    >>> from nscl.core.projection.rules import Ratio
    >>> C = torch.diag(torch.tensor([4.0, 1.0, 0.01], dtype=torch.float64))[None]
    >>> decompose(C, Ratio(10.0))[0].share  # doctest: +ELLIPSIS
    0.00199...
    """
    if rule.literal:
        return _decompose_literally(covariance, rule, strict=strict)
    values, vectors = eigenpairs(covariance, strict=strict)
    floor = default_floor(values) + NOISE_MARGIN * _noise_along(vectors, noise)
    weights = rule(values, tasks=tasks, floor=floor)
    return Spectrum(values, weights, floor), vectors


def eigenpairs(matrix: Tensor, *, strict: bool = False) -> tuple[Tensor, Tensor]:
    """Eigenvalues, clamped at zero, and eigenvectors of second moments ``[groups, d, d]``.

    ``strict`` refuses a matrix with negative eigenvalues that no rounding explains.
    """
    values, vectors = _eigh(matrix)
    if strict:
        _check_signs(values)
    return values.clamp_min_(0.0), vectors


def _check_signs(values: Tensor) -> None:
    """Refuse eigenvalues ``[groups, d]`` below zero by more than rounding."""
    if values.numel() and (values.amin(-1) < -INDEFINITE * values.abs().amax(-1)).any():
        raise IndefiniteError(f"has a negative eigenvalue ({float(values.min()):.3g})")


def _noise_along(vectors: Tensor, noise: Tensor | float) -> Tensor:
    """``√d · Σ_i noise_i·v_i²`` for every eigenvector."""
    if isinstance(noise, float):
        return torch.full_like(vectors[:, 0], noise * math.sqrt(vectors.shape[-1]))
    along: Tensor = (noise[:, None] @ vectors.square()).squeeze(1)
    return along.mul_(math.sqrt(vectors.shape[-1]))


def _eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    # Of the two triangles, which hold the same numbers, LAPACK is some 20 % faster with the upper.
    try:
        values, vectors = torch.linalg.eigh(matrix, UPLO="U")
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        # LAPACK can fail to converge on nearly multiple eigenvalues; a shift below the noise
        # floor separates nothing that matters and moves no eigenvector.
        largest = matrix.diagonal(dim1=-2, dim2=-1).amax(-1)
        jitter = matrix.shape[-1] * torch.finfo(matrix.dtype).eps * largest
        eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        values, vectors = torch.linalg.eigh(matrix + jitter[..., None, None] * eye, UPLO="U")
    return values, vectors


def _decompose_literally(
    covariance: Tensor, rule: Rule, *, strict: bool
) -> tuple[Spectrum, Tensor]:
    """The authors' numerics: a float32 SVD whose smallest singular values are rounding noise."""
    vectors, values, others = torch.linalg.svd(covariance.float())
    if strict:  # singular values have no sign, but left and right vectors differ in it
        _check_signs(values * (vectors * others.mT).sum(-2))
    values, vectors = values.flip(-1), vectors.flip(-1)
    weights = rule(values).double()
    floor = torch.zeros_like(values, dtype=torch.float64)
    return Spectrum(values.double(), weights, floor), vectors.double()
