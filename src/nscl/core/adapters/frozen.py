"""Parameters set aside because they are frozen: remembered, but not decomposed and not reported.

Their sums are kept, as they may be trained one day, and the data will be gone by then. As soon as
one of them can move, its layer is decomposed like all others.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from torch import Tensor

from nscl.core.state import State


def set_aside(state: State, names: Collection[str]) -> State:
    """The state without projections of layers whose parameters are all among these names."""
    changed = replace(state, frozen=frozenset(names))
    idle = {name for name, block in state.blocks.items() if changed.is_frozen(block)}
    return replace(
        changed,
        spectra={n: s for n, s in state.spectra.items() if n not in idle},
        projections={n: p for n, p in state.projections.items() if n not in idle},
    )


def frozen(parameters: Mapping[str, Tensor]) -> set[str]:
    """Names of the parameters that cannot move."""
    return {name for name, parameter in parameters.items() if not _can_move(parameter)}


def without_unfrozen(state: State, parameters: Mapping[str, Tensor]) -> State:
    """The state where nothing that can move counts as frozen; projections are as before."""
    moving = {name for name in state.frozen if name in parameters and _can_move(parameters[name])}
    return replace(state, frozen=state.frozen - moving) if moving else state


def _can_move(parameter: Tensor) -> bool:
    # Optimizers move whatever has a gradient, also one left over from before it was frozen.
    return parameter.requires_grad or parameter.grad is not None
