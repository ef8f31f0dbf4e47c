"""A low-rank adapter ``s·B·A`` beside a remembered layer: where A and B may go.

The wrapped layer's inputs x are remembered by their covariance C, and A is fed the same x. While B
is zero A may be anything, so it is moved into the null space of C: ``A ← A·P``, and no output
changes. Its steps are projected by the same P from then on. So old inputs feed B zeros, whatever B
is, and B is entirely free. Holding A and B as two ordinary layers instead would lock B, whose few
inputs are all in use.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from nscl.core.checks.forget_layers import drop_layers
from nscl.core.covariance.covariance import Covariance
from nscl.core.covariance.packed import pack, unpack
from nscl.core.covariance.sketched_covariance import SketchedCovariance
from nscl.core.distributed.fsdp import is_sharded
from nscl.core.model.block import Block, weight_matrix, write_weight_matrix
from nscl.core.model.inventory import Inventory
from nscl.core.projection.low_rank_projector import Projection
from nscl.core.projection.rules import Energy, Rule
from nscl.core.report import listed
from nscl.core.state import Placed, State
from nscl.errors import NsclError, NsclWarning, UnsupportedError

SHARE = 0.01  # of old inputs' energy that a null space may hold where the memory's rule is soft


@dataclass(frozen=True)
class Adapter:
    """Three modules, the wrapped layer, A beside it and B after A, and the scale of their sum."""

    wrapped: nn.Module
    down: nn.Module
    up: nn.Module
    scale: float


@dataclass(frozen=True)
class _Blocks:
    """The blocks of an adapter; a layer that shares its weight has the block of the first."""

    wrapped: Block
    down: Block
    up: Block
    scale: float

    def placed(self, rule: Rule | None) -> Placed:
        """What a state knows of it."""
        return Placed(self.wrapped.name, self.up.weight, self.scale, rule)


def default_rule(rule: Rule) -> Rule:
    """The memory's own rule if it leaves a null space; a proximal one leaves none."""
    return Energy(SHARE) if rule.soft else rule


def place(
    state: State, found: Inventory, adapters: Sequence[Adapter], rule: Rule
) -> tuple[State, list[str]]:
    """The state with every untouched adapter in its place, and the names of their A.

    An adapter beside a layer that no remembered batch has reached is free, as that layer is.
    """
    placed = []
    for blocks in filter(None, (_blocks(found, adapter) for adapter in adapters)):
        if blocks.wrapped.name not in state.covariances:
            continue
        if _is_untouched(state, found, blocks.up):
            state = _give_rule(state, found, blocks, rule)
            placed.append(blocks.down.name)
        elif not _is_held(state, blocks):
            raise NsclError(
                f"the adapter of '{blocks.wrapped.name}' is trained already ('{blocks.up.name}' is "
                "not zero), and not all data were remembered with it: merge it into the model, or "
                "remember the old data again with it"
            )
        elif blocks.down.name not in state.adapters:
            state = _known(state, blocks, None)
    return state, placed


def check_room(state: State, names: Sequence[str], rule: Rule) -> None:
    """An A without a free direction would stay zero, and its adapter would learn nothing."""
    full = [name for name in names if state.spectra[name].free == 0]
    if full and len(full) == len(names):
        raise NsclError(
            f"{rule} leaves no direction free in the inputs of any adapted layer, so the adapters "
            "could learn nothing: give a rule that frees more, such as rule=nscl.Energy(0.1)"
        )
    if full:
        warnings.warn(
            f"{rule} leaves no direction free for {listed(full)}: these adapters learn nothing",
            NsclWarning,
            stacklevel=4,
        )


def _blocks(found: Inventory, adapter: Adapter) -> _Blocks | None:
    """Nothing where all three are excluded: A and B lie inside of what wraps the layer."""
    uses = [found.uses[module][0] for module in (adapter.wrapped, adapter.down, adapter.up)]
    if not all(use.block for use in uses):
        return None
    wrapped, down, up = (found.blocks[use.block] for use in uses)
    return _Blocks(wrapped, down, up, adapter.scale)


def _is_untouched(state: State, found: Inventory, up: Block) -> bool:
    """Whether B is zero, and was when it was last remembered."""
    weights = (found.parameters[up.weight].detach(), state.reference.get(up.weight))
    return not any(weight is not None and bool(weight.any()) for weight in weights)


def _is_held(state: State, blocks: _Blocks) -> bool:
    """Whether A lies in a null space already, or both have seen all that the layer has seen."""
    known = state.covariances
    rows = [known[b.name].rows if b.name in known else 0 for b in (blocks.down, blocks.up)]
    seen = min(rows) >= known[blocks.wrapped.name].rows
    return seen or state.rule_of(blocks.down.name) is not None


def _give_rule(state: State, found: Inventory, blocks: _Blocks, rule: Rule) -> State:
    """The state in which A is held by the wrapped layer's covariance, and B by nothing.

    B, which is zero, is kept for ``recall``: the wrapped layer answered alone.
    """
    wrapped, down, up = blocks.wrapped, blocks.down, blocks.up
    _check(wrapped, down, [found.parameters[block.weight] for block in (down, up)])
    without = drop_layers(state, [up.name])
    covariance = _of_inputs(state.covariances[wrapped.name], wrapped)
    zero = found.parameters[up.weight].detach().clone()
    rest = {n: t for n, t in without.rest.items() if n != down.weight}
    without = _known(without, blocks, rule)
    return replace(
        without,
        blocks={**without.blocks, down.name: down},
        covariances={**without.covariances, down.name: covariance},
        gradients={n: g for n, g in without.gradients.items() if n != down.name},
        reference={**without.reference, down.weight: found.parameters[down.weight].detach()},
        rest={**rest, up.weight: zero},
    )


def _known(state: State, blocks: _Blocks, rule: Rule | None) -> State:
    return replace(state, adapters={**state.adapters, blocks.down.name: blocks.placed(rule)})


@torch.no_grad()
def move_into_null_space(state: State, found: Inventory, names: Sequence[str]) -> State:
    """Multiply these A by their projections, in the model too; rows keep their mean length."""
    reference = dict(state.reference)
    for name in names:
        block, projection = state.blocks[name], state.projections[name]
        assert isinstance(projection, Projection)
        parameter = found.parameters[block.weight]
        parameter.copy_(_projected(block, parameter.detach(), projection))
        reference[block.weight] = parameter.detach().clone()
    return replace(state, reference=reference)


def _projected(block: Block, weight: Tensor, projection: Projection) -> Tensor:
    placed = weight.double()
    matrix = weight_matrix(block, placed).clone().contiguous()
    length = matrix.norm()
    projection.to(device=matrix.device, dtype=matrix.dtype).apply_(matrix)
    if matrix.norm() > 0:
        matrix *= length / matrix.norm()
    write_weight_matrix(block, matrix, placed)
    return placed.to(weight.dtype)


def _check(wrapped: Block, down: Block, parameters: Sequence[Tensor]) -> None:
    if (wrapped.features, wrapped.groups) != (down.features, down.groups):
        raise UnsupportedError(
            f"'{down.name}' ({down.shape()}) does not multiply the inputs of '{wrapped.name}' "
            f"({wrapped.shape()}), so it cannot be kept in their null space: leave this layer out "
            "of the adapter's targets"
        )
    if any(is_sharded(parameter) for parameter in parameters):
        raise UnsupportedError(f"'{down.name}' is sharded: prepare the adapter before fully_shard")


def _of_inputs(covariance: Covariance, wrapped: Block) -> Covariance:
    """The covariance without the constants of biases, which an adapter does not have."""
    if not wrapped.biases:
        return covariance
    if isinstance(covariance, SketchedCovariance):
        inputs = covariance.sketch.restricted(range(wrapped.features))
        return SketchedCovariance.of(inputs, covariance.rows, covariance.tasks)
    sums = unpack(covariance.sums)[:, : wrapped.features, : wrapped.features]
    return replace(covariance, stored=pack(sums))
