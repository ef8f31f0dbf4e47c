"""Layers that are not where a guarded step could have left them: the trace of an unguarded one.

A projected step moves weights in free directions only, up to rounding. So if a displacement since
the last ``remember`` has a part in held directions, something else has moved these weights: an
optimizer that nobody protects, or other weights that were loaded. Everything here looks at this
rank's rows only, so nobody needs to ask for it on all ranks.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nscl.core.blocks import Block
from nscl.core.kronecker import Kronecker
from nscl.core.pieces import pieces
from nscl.core.precision import full_precision
from nscl.core.projection import Mask, Projection
from nscl.core.report import listed
from nscl.core.shards import local, part_of
from nscl.core.state import State
from nscl.core.updates import beside, difference
from nscl.errors import UnsupportedError

_ROUNDING = 8.0  # units in the last place that each step may cost
_SHARE = 1e-2  # of a displacement: more than this was no accident of the arithmetic
# Training adds to weights: a network of two tasks of digits, trained until its weights were thrice
# as far from the old ones as those are long, kept a cosine of 0.27. Other weights have none, up to
# 1/√n by chance.
_ALIKE, _SMALL_ALIKE = 0.1, 0.25
_FAR = 0.7  # of the weights' own size: what nobody has trained yet does not get so far
UNKNOWN = 1000  # steps taken before a memory was loaded, for the rounding that they may have left


@dataclass(frozen=True)
class _Moved:
    """A block's displacement since the last ``remember``."""

    block: Block
    deltas: Mapping[str, Tensor]
    before: Mapping[str, Tensor]  # the remembered weights

    @property
    def distance(self) -> float:
        return _size(self.deltas)

    @property
    def size(self) -> float:
        """Size of the remembered weights."""
        return _size(self.before)

    @property
    def is_unrelated(self) -> bool:
        """Whether the weights have nothing to do with the remembered ones, which are not zero."""
        along = sum(float((self.deltas[p] * old).double().sum()) for p, old in self.before.items())
        before, now = self.size, _size({p: d + self.before[p] for p, d in self.deltas.items()})
        count = sum(old.numel() for old in self.before.values())
        least = max(_ALIKE, min(_SMALL_ALIKE, 2.0 / math.sqrt(max(1, count))))
        return before > 0 and before**2 + along <= least * before * now


def strayed(
    state: State,
    parameters: Mapping[str, Tensor],
    *,
    steps: int,
    ignore: Collection[str] = (),
) -> list[str]:
    """Layers that have moved in directions that are held; frozen parameters that have moved.

    Only hard projections can tell: a soft one lets every direction move a little, as does the
    rounding of weights in half precision. ``steps`` guarded steps may have left rounding errors;
    ``ignore`` names blocks that were projected differently.
    """
    found = [name for name in sorted(state.held) if _has_moved(name, state, parameters)]
    for moved in _displacements(state, parameters):
        block, projection = moved.block, state.projections[moved.block.name]
        if isinstance(projection, Kronecker) or block.name in ignore:
            continue
        if not _can_tell(block, state, parameters):
            continue
        eps = torch.finfo(parameters[block.weight].dtype).eps
        with full_precision(parameters[block.weight].device.type):
            held = _held_part(moved, projection, parameters)
        if held > max(_SHARE * moved.distance, _ROUNDING * eps * (steps + 1) * moved.size):
            found.append(block.name)
    return found


def unrelated(state: State, parameters: Mapping[str, Tensor], *, steps: int) -> list[str]:
    """Layers with other weights, where the projection cannot tell: it is soft, or holds nothing.

    Distance tells only before any of the ``steps``: where much is free, training goes further than
    the weights are long.
    """
    return [
        moved.block.name
        for moved in _displacements(state, parameters)
        if not _can_tell(moved.block, state, parameters) or _holds_nothing(moved.block.name, state)
        if moved.is_unrelated or (steps == 0 and moved.distance > _FAR * moved.size > 0)
    ]


def unguarded(
    state: State, parameters: Mapping[str, Tensor], guarded: Collection[int]
) -> list[str]:
    """Remembered layers with a trainable parameter that is in no guarded optimizer."""
    return [
        block.name
        for name, block in state.blocks.items()
        if name in state.projections
        if any(
            parameters[p].requires_grad and id(parameters[p]) not in guarded
            for p in block.parameters
        )
    ]


def without_weights(
    state: State, parameters: Mapping[str, Tensor], optimizers: Sequence[Collection[int]]
) -> list[str]:
    """Trainable biases in a guarded optimizer that does not train their weight: they are held."""
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
def _displacements(state: State, parameters: Mapping[str, Tensor]) -> Iterator[_Moved]:
    for name in state.projections:
        block = state.blocks[name]
        if any(_has_moved(p, state, parameters) for p in block.parameters):
            before = {p: part_of(state.reference[p], p, parameters[p]) for p in block.parameters}
            deltas = {
                p: difference(local(parameters[p].detach()), old) for p, old in before.items()
            }
            yield _Moved(block, deltas, before)


def _has_moved(name: str, state: State, parameters: Mapping[str, Tensor]) -> bool:
    now = local(parameters[name].detach())
    return not torch.equal(now, part_of(state.reference[name], name, parameters[name]))


def _held_part(
    moved: _Moved, projection: Projection | Mask, parameters: Mapping[str, Tensor]
) -> float:
    """How much of a displacement lies in held directions."""
    free = {name: delta.clone() for name, delta in moved.deltas.items()}
    exact = projection if isinstance(projection, Mask) else _unscaled(projection)
    try:
        for piece in pieces(moved.block, beside(parameters[moved.block.weight], exact), parameters):
            piece.apply(free)
    except UnsupportedError:
        return 0.0  # sharded such that no step is projected at all: protecting it is an error
    return _size({name: delta - free[name] for name, delta in moved.deltas.items()})


def _unscaled(projection: Projection) -> Projection:
    """The orthogonal projector itself, without a division by its Frobenius norm."""
    lengths = projection.basis.norm(dim=1, keepdim=True)
    unit = projection.basis / lengths.clamp_min(torch.finfo(lengths.dtype).tiny)
    return replace(projection, basis=unit, scale=1.0)


def _can_tell(block: Block, state: State, parameters: Mapping[str, Tensor]) -> bool:
    weights = state.spectra[block.name].weights
    is_proximal = isinstance(state.projections[block.name], Kronecker)
    hard = not is_proximal and bool(((weights == 0) | (weights == 1)).all())
    both = (state.reference[block.weight], parameters[block.weight])
    is_half = any(tensor.element_size() < 4 for tensor in both)
    return hard and (block.layout == "tokens" or not is_half)


def _holds_nothing(name: str, state: State) -> bool:
    return bool((state.spectra[name].weights == 1).all())


def _size(tensors: Mapping[str, Tensor]) -> float:
    return math.sqrt(sum(float(t.double().square().sum()) for t in tensors.values()))


def told_strayed(names: Sequence[str]) -> Iterator[str]:
    """Say that something unguarded has moved these layers."""
    if names:
        yield (
            f"moved out of the null space since the last remember: {listed(names)}: an optimizer "
            "that this memory does not protect has stepped (re-created, a second one, the inner "
            "one of a wrapper), or other weights were loaded. Old outputs have moved, see "
            "memory.forgetting(); protect every optimizer that trains these layers"
        )


def told_unguarded(names: Sequence[str]) -> Iterator[str]:
    """Say that these layers are remembered but nobody guards them."""
    if names:
        yield (
            f"in no protected optimizer: {listed(names)}: if another optimizer trains them, "
            "protect that one too"
        )


def told_without_weights(names: Sequence[str]) -> Iterator[str]:
    """Say that these biases do not move."""
    if names:
        yield (
            f"cannot move: {listed(names)}: a bias by itself moves all old outputs, so it is free "
            "only together with its weight; let one optimizer train both"
        )


def told_other_weights(names: Sequence[str], *, pulls: bool) -> Iterator[str]:
    """Say that memory and model do not have the same weights."""
    if names:
        pulled = (
            " acts_on='displacement' will pull them back there with the next step." if pulls else ""
        )
        yield (
            f"this memory was made of other weights than the model has in {listed(names)}.{pulled} "
            "Load the model's weights before the memory and before training; if the layers are "
            f"meant to be new ones, call memory.forget({names[0]!r})"
        )
