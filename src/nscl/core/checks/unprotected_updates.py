"""Layers that a protected step cannot have left where they are: an unprotected one moved them.

A projected step moves weights in free directions only, up to rounding. If the displacement since
the last ``remember`` has a part in held directions, something else has moved these weights: an
optimizer that is not protected, or other weights that were loaded. Everything here looks at this
rank's rows only, so no other rank needs to take part.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nscl.core.distributed.fsdp import local, part_of
from nscl.core.model.block import Block
from nscl.core.projection.block_update import block_updates
from nscl.core.projection.kronecker import Kronecker
from nscl.core.projection.low_rank_projector import Mask, Projection
from nscl.core.projection.precision import full_precision
from nscl.core.projection.step_plan import beside, difference
from nscl.core.report import listed
from nscl.core.state import State
from nscl.errors import UnsupportedError

_ROUNDING = 8.0  # units in the last place that each step may cost
_SHARE = 1e-2  # of a displacement: a larger held part is not an accident of the arithmetic
UNKNOWN_STEPS = 1000  # assumed before a memory was loaded, for the rounding they may have left


@dataclass(frozen=True)
class _Displacement:
    """How far a block is from where the last ``remember`` left it."""

    block: Block
    deltas: Mapping[str, Tensor]
    before: Mapping[str, Tensor]  # the remembered weights


def moved_in_held(
    state: State,
    parameters: Mapping[str, Tensor],
    *,
    steps: int,
    ignore: Collection[str] = (),
) -> list[str]:
    """Layers that have moved in held directions, and frozen parameters that have moved.

    Only hard projections can show this: a soft one lets every direction move a little, and so does
    the rounding of weights in half precision. ``steps`` protected steps may have left rounding
    errors; ``ignore`` names blocks that were projected differently.
    """
    found = [name for name in sorted(state.held) if _has_moved(name, state, parameters)]
    for moved in _displacements(state, parameters):
        block, projection = moved.block, state.projections[moved.block.name]
        if isinstance(projection, Kronecker) or block.name in ignore:
            continue
        if not _is_conclusive(block, state, parameters):
            continue
        eps = torch.finfo(parameters[block.weight].dtype).eps
        with full_precision(parameters[block.weight].device.type):
            held = _held_part(moved, projection, parameters)
        rounding = _ROUNDING * eps * (steps + 1) * _norm(moved.before)
        if held > max(_SHARE * _norm(moved.deltas), rounding):
            found.append(block.name)
    return found


def displaced_layers(state: State, parameters: Mapping[str, Tensor]) -> list[str]:
    """Layers that are not exactly where the last ``remember`` left them."""
    return [moved.block.name for moved in _displacements(state, parameters)]


def unprotected_layers(
    state: State, parameters: Mapping[str, Tensor], protected: Collection[int]
) -> list[str]:
    """Remembered layers with a trainable parameter that no protected optimizer holds."""
    return [
        block.name
        for name, block in state.blocks.items()
        if name in state.projections
        if any(
            parameters[p].requires_grad and id(parameters[p]) not in protected
            for p in block.parameters
        )
    ]


def biases_without_weights(
    state: State, parameters: Mapping[str, Tensor], optimizers: Sequence[Collection[int]]
) -> list[str]:
    """Trainable biases whose protected optimizer does not train their weight: they cannot move."""
    trained = {name: id(p) for name, p in parameters.items() if p.requires_grad}
    moving = [{name for name, key in trained.items() if key in held} for held in optimizers]
    found = (
        bias.parameter
        for block in (state.blocks[name] for name in state.projections)
        for bias in block.biases
        for held in moving
        if bias.parameter in held and block.weight not in held
    )
    return list(dict.fromkeys(found))  # once each, also where two layers are tied


@torch.no_grad()
def _displacements(state: State, parameters: Mapping[str, Tensor]) -> Iterator[_Displacement]:
    for name in state.projections:
        block = state.blocks[name]
        if block.weight not in state.reference:
            continue  # no pass has run it: its projection was given by hand
        if any(_has_moved(p, state, parameters) for p in block.parameters):
            before = {p: part_of(state.reference[p], p, parameters[p]) for p in block.parameters}
            deltas = {
                p: difference(local(parameters[p].detach()), old) for p, old in before.items()
            }
            yield _Displacement(block, deltas, before)


def _has_moved(name: str, state: State, parameters: Mapping[str, Tensor]) -> bool:
    now = local(parameters[name].detach())
    return not torch.equal(now, part_of(state.reference[name], name, parameters[name]))


def _held_part(
    moved: _Displacement, projection: Projection | Mask, parameters: Mapping[str, Tensor]
) -> float:
    """How much of a displacement lies in held directions."""
    free = {name: delta.clone() for name, delta in moved.deltas.items()}
    exact = projection if isinstance(projection, Mask) else _unscaled(projection)
    try:
        for update in block_updates(
            moved.block, beside(parameters[moved.block.weight], exact), parameters
        ):
            update.apply(free)
    except UnsupportedError:
        return 0.0  # sharded so that no step can be projected: protecting it is an error
    return _norm({name: delta - free[name] for name, delta in moved.deltas.items()})


def _unscaled(projection: Projection) -> Projection:
    """The orthogonal projector itself, without a division by its Frobenius norm."""
    if projection.dense:  # s·P with tr = s·k and ‖·‖² = s²·k
        trace = projection.basis.diagonal(dim1=-2, dim2=-1).sum(-1)
        size = projection.basis.square().sum((-2, -1))
        factor = torch.where(size > 0, trace / size, 0.0)[:, None, None]
        return replace(projection, basis=projection.basis * factor, scale=1.0)
    lengths = projection.basis.norm(dim=1, keepdim=True)
    unit = projection.basis / lengths.clamp_min(torch.finfo(lengths.dtype).tiny)
    return replace(projection, basis=unit, scale=1.0)


def _is_conclusive(block: Block, state: State, parameters: Mapping[str, Tensor]) -> bool:
    """Whether a held part would prove an unprotected step: hard weights, in full precision."""
    weights = state.spectra[block.name].weights
    hard = bool(((weights == 0) | (weights == 1)).all())
    both = (state.reference[block.weight], parameters[block.weight])
    is_half = any(tensor.element_size() < 4 for tensor in both)
    return hard and (block.layout == "tokens" or not is_half)


def _norm(tensors: Mapping[str, Tensor]) -> float:
    return math.sqrt(sum(float(t.double().square().sum()) for t in tensors.values()))


def describe_moved_in_held(names: Sequence[str]) -> Iterator[str]:
    """The warning that something unprotected has moved these layers."""
    if names:
        yield (
            f"moved out of the null space since the last remember: {listed(names)}: an unprotected "
            "optimizer has stepped (a second one, the inner one of a wrapper), or other weights "
            "were loaded; protect that optimizer, see memory.forgetting()"
        )


def describe_unprotected(names: Sequence[str]) -> Iterator[str]:
    """The remark that these layers are remembered but in no protected optimizer."""
    if names:
        yield (
            f"in no protected optimizer: {listed(names)}: if another optimizer trains them, "
            "protect that one too"
        )


def describe_biases_without_weights(names: Sequence[str]) -> Iterator[str]:
    """The remark that these biases do not move."""
    if names:
        yield (
            f"cannot move: {listed(names)}: a bias by itself moves all old outputs, so it is free "
            "only together with its weight; let one optimizer train both"
        )
