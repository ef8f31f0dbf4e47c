"""How the displacements of one block, of one norm layer or of one adapter are shrunk."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from nscl.core.model.block import Bias, Block, bias_vectors, weight_matrix, write_weight_matrix
from nscl.core.projection.kronecker import Diagonal, Kronecker
from nscl.core.projection.low_rank_projector import Projection
from nscl.core.projection.rules import Proximal


@dataclass(frozen=True)
class KroneckerUpdate:
    """A block whose outputs are mixed: all of it is needed at once."""

    block: Block
    has_weight: bool
    biases: tuple[Bias, ...]  # those that move
    kronecker: Kronecker
    allowance: float

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the displacements it changes; the first one's rate counts."""
        weight = (self.block.weight,) if self.has_weight else ()
        return (*weight, *(bias.parameter for bias in self.biases))

    def apply(self, deltas: Mapping[str, Tensor], rule: Proximal, rate: float) -> None:
        """Shrink whole displacements in place."""
        matrix = self.stacked(deltas)
        self.kronecker.shrink_(matrix, rule.multiplier, rate=rate, allowance=self.allowance)
        self._write(matrix, deltas)

    def cost(self, deltas: Mapping[str, Tensor]) -> float:
        """What the displacements cost old outputs: what the allowance limits."""
        return self.kronecker.cost(self.stacked(deltas))

    def stacked(self, deltas: Mapping[str, Tensor]) -> Tensor:
        """One matrix ``[groups, out, width]``, with a column for each bias."""
        if self.block.layout == "tokens":
            return deltas[self.block.weight].mT[None].contiguous()
        parts = [weight_matrix(self.block, deltas[self.block.weight])] if self.has_weight else []
        return torch.cat([*parts, *(b[..., None] for b in self._bias_parts(deltas))], -1)

    def _write(self, matrix: Tensor, deltas: Mapping[str, Tensor]) -> None:
        if self.block.layout == "tokens":
            deltas[self.block.weight].copy_(matrix[0].mT)
            return
        start = self.block.features if self.has_weight else 0
        if self.has_weight:
            write_weight_matrix(self.block, matrix[..., :start], deltas[self.block.weight])
        for i, part in enumerate(self._bias_parts(deltas)):
            part.copy_(matrix[..., start + i])

    def _bias_parts(self, deltas: Mapping[str, Tensor]) -> list[Tensor]:
        length = self._outputs(deltas)
        return [
            deltas[bias.parameter][bias.start : bias.start + length].view(self.block.groups, -1)
            for bias in self.biases
        ]

    def _outputs(self, deltas: Mapping[str, Tensor]) -> int:
        if self.block.layout == "transposed":
            return next(deltas[b.parameter].shape[0] for b in self.biases) if self.biases else 0
        return self.block.stop - self.block.start


@dataclass(frozen=True)
class ElementwiseUpdate:
    """A norm layer's or a plain parameter, each number by itself."""

    parameter: str
    diagonal: Diagonal
    allowance: float

    @property
    def parameters(self) -> tuple[str, ...]:
        """The name of the displacement it changes."""
        return (self.parameter,)

    def apply(self, deltas: Mapping[str, Tensor], rule: Proximal, rate: float) -> None:
        """Shrink the displacement in place."""
        delta = deltas[self.parameter]
        self.diagonal.shrink_(delta, rule.multiplier, rate=rate, allowance=self.allowance)

    def cost(self, deltas: Mapping[str, Tensor]) -> float:
        """What the displacement costs old outputs: what the allowance limits."""
        return self.diagonal.cost(deltas[self.parameter])


@dataclass(frozen=True)
class PlacedUpdate:
    """A block with a hard rule of its own: an adapter that stays in a null space."""

    block: Block
    projection: Projection
    allowance: float = math.inf

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the displacements it changes."""
        return self.block.parameters

    def apply(self, deltas: Mapping[str, Tensor], rule: Proximal, rate: float) -> None:
        """Project whole displacements in place, whatever the rate."""
        delta = deltas[self.block.weight]
        matrix = weight_matrix(self.block, delta).contiguous()
        self.projection.apply_(matrix, bias_vectors(self.block, deltas))
        write_weight_matrix(self.block, matrix, delta)

    def cost(self, deltas: Mapping[str, Tensor]) -> float:
        """Nothing is left of what would cost anything."""
        return 0.0


Update = KroneckerUpdate | ElementwiseUpdate | PlacedUpdate
