"""What low-rank adapters add to the layers that they stand beside: ``Σ scale·B·A``."""

from collections.abc import Mapping

from torch import Tensor

from nscl.core.distributed.fsdp import whole
from nscl.core.model.block import weight_matrix
from nscl.core.state import State


def remembered(state: State) -> dict[str, Tensor]:
    """Weights and buffers at the last ``remember``, by name: what ``recall`` computes with."""
    return {**state.rest, **state.reference}


def parts_of_adapters(state: State) -> set[str]:
    """Blocks that are an adapter's A or B: what they do shows in the layer beside them."""
    ups = {adapter.up for adapter in state.adapters.values()}
    return {n for n, block in state.blocks.items() if n in state.adapters or block.weight in ups}


def products(state: State, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """For each layer with adapters what they add to its matrix ``[groups, out, features]``."""
    found: dict[str, Tensor] = {}
    for name, adapter in state.adapters.items():
        down = weight_matrix(state.blocks[name], _precise(values[state.blocks[name].weight]))
        up = _precise(values[adapter.up]).flatten(1)
        product = adapter.scale * (up @ down)
        before = found.get(adapter.wrapped)
        found[adapter.wrapped] = product if before is None else before + product
    return found


def _precise(tensor: Tensor) -> Tensor:
    return whole(tensor.detach()).double().cpu()
