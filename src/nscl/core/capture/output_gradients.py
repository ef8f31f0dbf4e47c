"""Gradients of a loss at the outputs of layers: the second Kronecker factor of every block.

A forward hook passes each layer's output on as a copy whose place in the autograd graph is known:
in-place operations after the layer do not hide it. After the forward pass one backward pass
brings the gradient to each of these places; weights need none. The gradient is read at once: FSDP2
gathers the weights of a layer only while the backward pass is there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from nscl.core.model.block import Block, outputs_per_group
from nscl.core.model.layer_types import Call, LayerType
from nscl.errors import FeatureError, NsclError

GradientSink = Callable[[Block, Tensor], None]  # rows [groups, rows, out]

# A layer's G is out × out numbers: beyond this width (a vocabulary) inputs alone are remembered,
# unless a sketch takes its place.
WIDEST = 8192


@dataclass(frozen=True)
class _Tap:
    """One call of a layer."""

    module: nn.Module
    layer_type: LayerType
    blocks: Sequence[Block | None]
    call: Call
    real: Sequence[Tensor | None]  # per block: which rows count, None for all


class OutputTaps:
    """The outputs of all calls in one forward pass, and what its backward pass brings to them."""

    def __init__(
        self,
        shapes: Mapping[str, torch.Size],
        sink: GradientSink,
        *,
        widest: int | None = WIDEST,
    ) -> None:
        self._shapes, self._sink, self._widest = shapes, sink, widest
        self._edges: list[GradientEdge] = []
        self._problem: Exception | None = None

    def add(
        self,
        module: nn.Module,
        layer_type: LayerType,
        blocks: Sequence[Block | None],
        call: Call,
        real: Sequence[Tensor | None],
    ) -> Any:
        """Follow a call's output; returns what takes its place."""
        is_tuple = isinstance(call.output, tuple)
        followed = layer_type.followed
        output = call.output[followed] if is_tuple else call.output
        if not (isinstance(output, Tensor) and output.requires_grad):
            return call.output
        with torch.enable_grad():
            handed = output.clone()
        assert handed.grad_fn is not None
        # After the copy: FSDP2 gathers the weights of the layer when the backward pass is there.
        tap = _Tap(module, layer_type, blocks, call, real)
        handed.grad_fn.register_hook(partial(self._receive, tap))
        self._edges.append(get_gradient_edge(output))
        if not is_tuple:
            return handed
        return (*call.output[:followed], handed, *call.output[followed + 1 :])

    @property
    def edges(self) -> list[GradientEdge]:
        """The places in the graph that a backward pass must reach."""
        return list(self._edges)

    def _receive(self, tap: _Tap, gradients: Sequence[Tensor | None], _: object) -> None:
        if gradients[0] is None or self._problem is not None:
            return
        try:
            _send_rows(tap, gradients[0], self._shapes, self._sink, self._widest)
        except Exception as problem:
            self._problem = problem  # raised here it would leave other ranks alone in the pass

    def check(self) -> None:
        """Raise what went wrong with a gradient."""
        if self._problem is not None:
            raise self._problem

    def clear(self) -> None:
        """Forget a pass; its graph would keep itself alive otherwise."""
        self._edges, self._problem = [], None


def _send_rows(
    tap: _Tap,
    gradient: Tensor,
    shapes: Mapping[str, torch.Size],
    sink: GradientSink,
    widest: int | None,
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
    for block, found, real in zip(tap.blocks, rows, tap.real, strict=True):
        if block is None:
            continue
        out = outputs_per_group(block, shapes[block.weight])
        if found.shape[0] != block.groups or found.shape[-1] != out:
            raise FeatureError(
                f"layer '{block.name}' gave an output of {found.shape[-1]} channels per row, but "
                f"its weight is {block.shape()}: it does not end with rows @ weight.T; use "
                "factors='input'"
            )
        if widest is None or out <= widest:
            sink(block, found if real is None else found[:, real.to(found.device)])
