"""Gradients of a loss at the outputs of layers: the second Kronecker factor of every block.

A forward hook hands each layer's output on as a copy whose place in the autograd graph is known, so
that in-place operations behind the layer do not hide it. After the forward pass one backward pass
gives the gradient at every such place; weights need none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from nscl.core.blocks import Block, outputs_per_group
from nscl.core.layers import Call, LayerType
from nscl.errors import FeatureError, NsclError

GradientSink = Callable[[Block, Tensor], None]  # rows [groups, rows, out]

# A layer's G is out × out numbers: beyond this width (a vocabulary) inputs alone are remembered.
WIDEST = 8192


@dataclass(frozen=True)
class _Tap:
    """One call of a layer, and where its output lies in the graph."""

    module: nn.Module
    layer_type: LayerType
    blocks: Sequence[Block | None]
    call: Call
    edge: GradientEdge


class OutputTaps:
    """The outputs of all calls in one forward pass."""

    def __init__(self) -> None:
        self._taps: list[_Tap] = []

    def add(
        self, module: nn.Module, layer_type: LayerType, blocks: Sequence[Block | None], call: Call
    ) -> Any:
        """Follow a call's output; returns what takes its place."""
        is_tuple = isinstance(call.output, tuple)
        output = call.output[0] if is_tuple else call.output
        if not (isinstance(output, Tensor) and output.requires_grad):
            return call.output
        with torch.enable_grad():
            handed = output.clone()
        self._taps.append(_Tap(module, layer_type, blocks, call, get_gradient_edge(handed)))
        return (handed, *call.output[1:]) if is_tuple else handed

    def clear(self) -> None:
        """Forget a forward pass."""
        self._taps = []

    @property
    def edges(self) -> list[GradientEdge]:
        """Where gradients are wanted."""
        return [tap.edge for tap in self._taps]

    def receive(
        self, gradients: Sequence[Tensor | None], shapes: dict[str, torch.Size], sink: GradientSink
    ) -> None:
        """Hand the rows of all gradients to ``sink``, block by block; ends the forward pass."""
        for tap, gradient in zip(self._taps, gradients, strict=True):
            if gradient is not None:
                _hand_on(tap, gradient, shapes, sink)
        self.clear()


def _hand_on(
    tap: _Tap, gradient: Tensor, shapes: dict[str, torch.Size], sink: GradientSink
) -> None:
    layer = next(block for block in tap.blocks if block)
    try:
        rows = list(tap.layer_type.gradients(tap.module, tap.call, gradient))
    except NsclError:
        raise
    except Exception as problem:
        raise FeatureError(
            f"the output gradients of layer '{layer.name}' ({layer.kind}) could not be read: "
            f"{type(problem).__name__}: {problem}; use factors='input'"
        ) from problem
    for block, found in zip(tap.blocks, rows, strict=True):
        if block is None:
            continue
        out = outputs_per_group(block, shapes[block.weight])
        if found.shape[0] != block.groups or found.shape[-1] != out:
            raise FeatureError(
                f"layer '{block.name}' gave an output of {found.shape[-1]} channels per row, but "
                f"its weight is {block.shape()}: the layer does not end with rows @ weight.T, so "
                "its outputs cannot be weighed; use factors='input'"
            )
        if out <= WIDEST:
            sink(block, found)
