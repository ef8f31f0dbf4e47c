"""A block: one matrix of weights, seen as ``[groups, out, features]``, and the biases beside it.

Parameters come in many shapes; a block says where one matrix lies in one of them. Five layouts:

- ``rows``: dimension 0 is the output, the rest are features (linear, convolution, one third of an
  attention's packed projection). Rows are independent: a shard of dimension 0 is a smaller block.
- ``columns``: ``[features, out]``, a linear layer stored the other way round.
- ``stacked``: ``[groups, out, features]``, one matrix per expert. Dimension 0 counts groups.
- ``transposed``: a transposed convolution ``[in, out/groups, *kernel]``, which is the convolution
  of a zero-filled input with the mirrored kernel.
- ``tokens``: an embedding ``[tokens, width]``: every token is its own feature.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Layout = Literal["rows", "columns", "stacked", "transposed", "tokens"]
Values = Mapping[str, Tensor]  # by qualified parameter name


@dataclass(frozen=True)
class Bias:
    """A bias that shifts a block's output: its parameter, and where in it the block begins."""

    parameter: str
    start: int = 0


@dataclass(frozen=True)
class Block:
    """One matrix of weights that multiplies one kind of rows."""

    name: str
    kind: str
    weight: str  # qualified parameter name
    start: int  # in the parameter's dimension 0; for ``columns`` in dimension 1, its outputs
    stop: int
    features: int  # per group, without biases
    groups: int = 1
    layout: Layout = "rows"
    biases: tuple[Bias, ...] = ()

    @property
    def width(self) -> int:
        """Features per group with one constant for each bias."""
        return self.features + (0 if self.layout == "tokens" else len(self.biases))

    @property
    def parameters(self) -> tuple[str, ...]:
        """Qualified names of all parameters this block touches."""
        return (self.weight, *(bias.parameter for bias in self.biases))

    @property
    def way_out(self) -> str:
        """How to leave this layer unprotected, for error messages; a bare layer cannot be."""
        owner = self.weight.rpartition(".")[0]
        return f", or leave it free with exclude=['{owner}']" if owner else ""

    def signature(self) -> dict[str, object]:
        """What must agree between a memory and a model; saved in memory files."""
        return {
            "kind": self.kind,
            "weight": self.weight,
            "rows": [self.start, self.stop],
            "features": self.features,
            "groups": self.groups,
            "layout": self.layout,
            "biases": [[bias.parameter, bias.start] for bias in self.biases],
        }

    def shape(self) -> str:
        """The matrix in words, for error messages."""
        if self.layout == "stacked":
            return f"{self.groups} matrices of {self.features} features"
        groups = f"{self.groups} groups of " if self.groups > 1 else ""
        return f"{groups}{self.stop - self.start} × {self.features} ({self.layout})"


def outputs_per_group(block: Block, shape: Sequence[int]) -> int:
    """Outputs of one group, given the shape of the whole parameter."""
    if block.layout in ("rows", "columns"):
        return (block.stop - block.start) // block.groups
    return shape[1]


def weight_matrix(block: Block, parameter: Tensor) -> Tensor:
    """See a whole parameter as ``[groups, out, features]`` (``[tokens, width]`` for tokens)."""
    if block.layout == "tokens":
        return parameter
    if block.layout == "transposed":
        mirrored = parameter.flip(tuple(range(2, parameter.ndim)))
        grouped: Tensor = mirrored.unflatten(0, (block.groups, -1))
        return grouped.transpose(1, 2).flatten(3).flatten(2)
    if block.layout == "columns":
        return parameter[:, block.start : block.stop].mT[None]
    return parameter[block.start : block.stop].reshape(block.groups, -1, block.features)


def write_weight_matrix(block: Block, matrix: Tensor, parameter: Tensor) -> None:
    """Write ``[groups, out, features]`` back into a parameter-shaped tensor."""
    if block.layout == "transposed":
        kernel = parameter.shape[2:]
        inputs = parameter.shape[0] // block.groups
        grouped = matrix.unflatten(2, (inputs, -1)).transpose(1, 2)
        mirrored = grouped.reshape(parameter.shape[0], parameter.shape[1], *kernel)
        parameter.copy_(mirrored.flip(tuple(range(2, parameter.ndim))))
    elif block.layout == "columns":
        parameter[:, block.start : block.stop].copy_(matrix[0].mT)
    else:
        rows = parameter[block.start : block.stop]
        rows.copy_(matrix.reshape(rows.shape))


def bias_vectors(block: Block, values: Values) -> list[Tensor]:
    """The block's part of each bias as ``[groups, out]`` views."""
    length = _bias_length(block, values[block.weight])
    return [
        values[bias.parameter][bias.start : bias.start + length].view(block.groups, -1)
        for bias in block.biases
    ]


def _bias_length(block: Block, weight: Tensor) -> int:
    if block.layout == "transposed":
        return weight.shape[1] * block.groups
    return block.stop - block.start
