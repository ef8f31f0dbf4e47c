"""A projector that is never written out: the thinner of two bases, and which side it is.

Every layer's projector maps a displacement ``[groups, out, features]`` to a displacement. With
eigenvectors ``U`` and weights ``w`` it is ``D ↦ D U diag(w) Uᵀ``, applied as one of

    keep:    (D V) Vᵀ         V = the columns with w > 0, times √w
    remove:  D − (D V) Vᵀ     V = the columns with w < 1, times √(1 − w)

whichever needs fewer columns. Where even that is more than half of them, as for a soft rule that
weighs every direction, one product with the matrix itself is cheaper than two with the basis:

    dense:   D P              P = U diag(w) Uᵀ

A bias is one more feature, so its part of ``V`` is one more row; weights and biases stay where they
are, nothing is concatenated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Projection:
    """``D ↦ scale · (D·[remove] ± (D V) Vᵀ)`` for displacements ``[groups, out, features]``."""

    basis: Tensor  # [groups, features (+ biases), columns]; of a dense one the matrix P
    removes: bool
    scale: float = 1.0
    dense: bool = False

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What stays resident between optimizer steps."""
        return (self.basis,)

    @property
    def nbytes(self) -> int:
        """Bytes that stay resident between optimizer steps."""
        return self.basis.nbytes

    @property
    def columns(self) -> int:
        """Thickness of the stored basis."""
        return self.basis.shape[-1]

    @property
    def at_remember(self) -> "Projection":
        """The projection at the last ``remember``: itself, unless it follows the training."""
        return self

    def to(self, *, device: torch.device, dtype: torch.dtype) -> "Projection":
        """The same projection where, and as precise as, the parameters are."""
        return replace(self, basis=self.basis.to(device, dtype))

    def groups(self, start: int, stop: int) -> "Projection":
        """The same projection for some of the groups only: a shard of a grouped convolution."""
        return replace(self, basis=self.basis[start:stop])

    def apply_(self, weight: Tensor, biases: Sequence[Tensor] = ()) -> None:
        """Project ``weight [groups, out, features]`` and its ``biases [groups, out]`` in place.

        A bias that belongs to another module of a shared weight is simply one more of them.
        """
        if self.dense:
            self._multiply_(weight, biases)
            return
        features = weight.shape[-1]
        V, rows = self.basis[:, :features], self.basis[:, features:]
        coordinates = torch.bmm(weight, V)
        for bias, row in zip(biases, rows.unbind(1), strict=True):
            coordinates += bias[..., None] * row[:, None]
        sign, kept = (-1.0, 1.0) if self.removes else (1.0, 0.0)
        weight.baddbmm_(coordinates, V.mT, beta=kept * self.scale, alpha=sign * self.scale)
        for bias, row in zip(biases, rows.unbind(1), strict=True):
            change = torch.bmm(coordinates, row[..., None]).squeeze(-1)
            bias.mul_(kept * self.scale).add_(change, alpha=sign * self.scale)

    def _multiply_(self, weight: Tensor, biases: Sequence[Tensor]) -> None:
        features = weight.shape[-1]
        P, rows = self.basis[:, :features], self.basis[:, features:]
        product = torch.bmm(weight, P)
        for bias, row in zip(biases, rows.unbind(1), strict=True):
            product += bias[..., None] * row[:, None]
        weight.copy_(product[..., :features]).mul_(self.scale)
        for i, bias in enumerate(biases):
            bias.copy_(product[..., features + i]).mul_(self.scale)


@dataclass(frozen=True)
class Mask:
    """An embedding's projector: each token is a direction of its own, free (1) or held (0)."""

    free: Tensor  # [tokens]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What stays resident between optimizer steps."""
        return (self.free,)

    @property
    def nbytes(self) -> int:
        """Bytes that stay resident between optimizer steps."""
        return self.free.nbytes

    def __and__(self, other: "Mask") -> "Mask":
        """Free only what both leave free."""
        return Mask(self.free * other.free)

    def to(self, *, device: torch.device, dtype: torch.dtype) -> "Mask":
        """The same mask where, and as precise as, the parameters are."""
        return Mask(self.free.to(device, dtype))


def thin_projection(vectors: Tensor, weights: Tensor, *, frobenius: bool = False) -> Projection:
    """Build the projection with fewer columns from eigenvectors and weights.

    ``frobenius`` divides by the projector's Frobenius norm, as the authors' code does: the step is
    then √rank times shorter than the paper says.

    >>> P = thin_projection(torch.eye(3)[None], torch.tensor([[1.0, 0.0, 0.0]]))
    >>> D = torch.ones(1, 1, 3); P.apply_(D); D
    tensor([[[1., 0., 0.]]])
    """
    norms = weights.square().sum(-1).sqrt()
    if frobenius and weights.shape[0] > 1:
        # Each group is a matrix of its own with its own norm, which "remove" cannot carry.
        scaled = weights / norms.clamp_min(torch.finfo(norms.dtype).tiny)[:, None]
        return _kept(vectors, scaled)
    scale = 1.0 / float(norms) if frobenius and norms > 0 else 1.0
    removed = 1.0 - weights
    if _thickness(removed) <= min(_thickness(weights), weights.shape[-1] // 2):
        return Projection(columns_of(vectors, removed), removes=True, scale=scale)
    return _kept(vectors, weights, scale=scale)


def _kept(vectors: Tensor, gains: Tensor, *, scale: float = 1.0) -> Projection:
    """Keep the columns of positive gain; as one matrix where they are more than half of all."""
    if 2 * _thickness(gains) > gains.shape[-1]:
        matrix = (vectors * gains[:, None]) @ vectors.mT
        return Projection(matrix, removes=False, scale=scale, dense=True)
    return Projection(columns_of(vectors, gains), removes=False, scale=scale)


def _thickness(gains: Tensor) -> int:
    return int((gains > 0).sum(-1).max())


def columns_of(vectors: Tensor, gains: Tensor) -> Tensor:
    """Columns of positive gain, times its root; thinner groups are filled up with zeros."""
    thickness = _thickness(gains)
    order = gains.argsort(dim=-1, descending=True, stable=True)[:, :thickness]
    picked = vectors.gather(-1, order[:, None].expand(-1, vectors.shape[-2], -1))
    return (picked * gains.gather(-1, order).sqrt()[:, None]).contiguous()
