"""Where a block's part of a displacement lives on this rank, and what happens to it there.

All looking-up is done once, when a plan is made: a parameter that cannot be projected shard by
shard is refused before any step has moved it, and a step itself only multiplies.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from nscl.core.distributed.fsdp import is_sharded, local_rows
from nscl.core.model.block import (
    Bias,
    Block,
    Values,
    bias_vectors,
    weight_matrix,
    write_weight_matrix,
)
from nscl.core.projection.low_rank_projector import Mask, Projection
from nscl.errors import UnsupportedError


class BlockUpdate(Protocol):
    """One thing that is done to the displacements of a step."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the displacements it changes."""
        ...

    def apply(self, deltas: Values) -> None:
        """Project this rank's displacements in place."""
        ...


@dataclass(frozen=True)
class _Span:
    """Consecutive rows of a parameter, counted from the first that lives here."""

    parameter: str
    start: int
    stop: int

    def of(self, deltas: Values) -> Tensor:
        return deltas[self.parameter][self.start : self.stop]


@dataclass(frozen=True)
class RowUpdate:
    """Whole groups of a block, or a part of one, with the biases beside them."""

    weight: _Span
    biases: tuple[_Span, ...]
    groups: int
    projection: Projection

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the displacements it changes."""
        return (self.weight.parameter, *(bias.parameter for bias in self.biases))

    def apply(self, deltas: Values) -> None:
        """Project rows in place; they are independent of all other rows."""
        matrix = self.weight.of(deltas).view(self.groups, -1, self._features)
        biases = [bias.of(deltas).view(self.groups, -1) for bias in self.biases]
        self.projection.apply_(matrix, biases)

    @property
    def _features(self) -> int:
        return self.projection.basis.shape[1] - len(self.biases)


@dataclass(frozen=True)
class TransposedUpdate:
    """The whole of a weight that is stored transposed: its rows are not rows of its parameter."""

    block: Block
    projection: Projection

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the displacements it changes."""
        return self.block.parameters

    def apply(self, deltas: Values) -> None:
        """Bring the weight into rows, project, and write it back."""
        delta = deltas[self.block.weight]
        matrix = weight_matrix(self.block, delta).contiguous()
        self.projection.apply_(matrix, bias_vectors(self.block, deltas))
        write_weight_matrix(self.block, matrix, delta)


@dataclass(frozen=True)
class TokenUpdate:
    """Rows of an embedding, or entries of the bias of an output layer tied to it."""

    span: _Span
    free: Tensor

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the displacements it changes."""
        return (self.span.parameter,)

    def apply(self, deltas: Values) -> None:
        """Hold the tokens that were seen."""
        delta = self.span.of(deltas)
        delta *= self.free.view(-1, *(1,) * (delta.ndim - 1))


@dataclass(frozen=True)
class HeldBias:
    """A bias that may not move at all."""

    span: _Span

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the displacements it changes."""
        return (self.span.parameter,)

    def apply(self, deltas: Values) -> None:
        """Undo its displacement."""
        self.span.of(deltas).zero_()


def block_updates(
    block: Block, projection: Projection | Mask, parameters: Values
) -> Iterator[BlockUpdate]:
    """Divide a block into the parts of it that this rank holds."""
    if isinstance(projection, Mask):
        yield from _tokens(block, projection, parameters)
    elif block.layout in ("transposed", "columns"):
        yield _transposed(block, projection, parameters)
    else:
        yield from _rows(block, projection, parameters)


def hold_bias(block: Block, bias: Bias, parameters: Values) -> Iterator[BlockUpdate]:
    """Hold the part of a bias that belongs to this block."""
    parameter = parameters[bias.parameter]
    length = parameter.shape[0] if block.layout == "transposed" else block.stop - block.start
    lo, hi = local_rows(bias.parameter, parameter)
    start, stop = max(lo, bias.start), min(hi, bias.start + length)
    if start < stop:
        yield HeldBias(_Span(bias.parameter, start - lo, stop - lo))


def _tokens(block: Block, mask: Mask, parameters: Values) -> Iterator[BlockUpdate]:
    for name in block.parameters:
        if name in parameters:
            lo, hi = local_rows(name, parameters[name])
            yield TokenUpdate(_Span(name, 0, hi - lo), mask.free[lo:hi])


def _transposed(block: Block, projection: Projection, parameters: Values) -> BlockUpdate:
    if any(is_sharded(parameters[name]) for name in block.parameters):
        raise UnsupportedError(
            f"'{block.name}' ({block.kind}) is sharded along its input channels, which its "
            "projection mixes: leave this layer out of fully_shard"
        )
    return TransposedUpdate(block, projection)


def _rows(block: Block, projection: Projection, parameters: Values) -> Iterator[BlockUpdate]:
    lo, hi = local_rows(block.weight, parameters[block.weight])
    first, last = max(block.start, lo) - block.start, min(block.stop, hi) - block.start
    if first >= last:
        return
    size = (block.stop - block.start) // block.groups
    if first % size == 0 and last % size == 0:
        cuts = [(first, last, first // size, last // size)]
    else:  # groups straddle shards: one group at a time
        cuts = [
            (max(first, group * size), min(last, (group + 1) * size), group, group + 1)
            for group in range(first // size, -(-last // size))
        ]
    for a, b, group, end in cuts:
        yield RowUpdate(
            _Span(block.weight, block.start + a - lo, block.start + b - lo),
            tuple(_bias_span(block, bias, parameters, a, b) for bias in block.biases),
            end - group,
            projection.groups(group, end),
        )


def _bias_span(block: Block, bias: Bias, parameters: Values, first: int, last: int) -> _Span:
    lo, hi = local_rows(bias.parameter, parameters[bias.parameter])
    start, stop = bias.start + first, bias.start + last
    if start < lo or stop > hi:
        raise UnsupportedError(
            f"'{bias.parameter}' and '{block.weight}' are sharded differently, so "
            f"'{block.name}' cannot be projected shard by shard: leave this layer out of "
            "fully_shard"
        )
    return _Span(bias.parameter, start - lo, stop - lo)
