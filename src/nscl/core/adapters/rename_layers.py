"""Layers whose names have changed, because a wrapper was put around them or taken off."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from torch import Tensor

from nscl.core.checks.forget_layers import drop_layers
from nscl.core.model.block import Block
from nscl.core.state import Placed, State

_T = TypeVar("_T")


def rename_layers(state: State, names: Mapping[str, str]) -> State:
    """The state of the same layers under other names; what ``names`` does not have keeps its own.

    ``names`` maps modules, parameters and buffers, each by its full name.

    >>> from nscl.core.state import State
    >>> state = State(held=frozenset({"head.weight"}))
    >>> rename_layers(state, {"head.weight": "inner.head.weight"}).held
    frozenset({'inner.head.weight'})
    """
    if not names:
        return state
    labels = {name: _block_name(block, names) for name, block in state.blocks.items()}
    return replace(
        state,
        blocks={labels[name]: _renamed_block(b, names) for name, b in state.blocks.items()},
        covariances=_renamed(state.covariances, labels),
        spectra=_renamed(state.spectra, labels),
        projections=_renamed(state.projections, labels),
        gradients=_renamed(state.gradients, labels),
        adapters={labels.get(n, n): _moved(a, labels, names) for n, a in state.adapters.items()},
        reference=_renamed(state.reference, names),
        anchors=_renamed(state.anchors, names),
        held=frozenset(names.get(name, name) for name in state.held),
        frozen=frozenset(names.get(name, name) for name in state.frozen),
        statistics=_renamed(state.statistics, names),
        rest=_renamed(state.rest, names),
    )


def remove_adapters(
    state: State, inside: Sequence[str], names: Mapping[str, str], merged: Mapping[str, Tensor]
) -> State:
    """The state once wrappers are gone: what is ``inside`` of them is dropped, the rest renamed.

    ``merged`` has what the weights of the last ``remember`` are now that adapters are part of them,
    by their new names.
    """
    renamed = rename_layers(drop_layers(state, inside), names)
    return replace(
        renamed,
        reference={name: merged.get(name, t) for name, t in renamed.reference.items()},
        rest={name: merged.get(name, t) for name, t in renamed.rest.items()},
    )


def _renamed(values: Mapping[str, _T], names: Mapping[str, str]) -> dict[str, _T]:
    return {names.get(name, name): value for name, value in values.items()}


def _block_name(block: Block, names: Mapping[str, str]) -> str:
    """A block is its module, or a matrix of it: ``attention.in_proj.query`` has no module."""
    if block.weight not in names:
        return block.name
    prefix, label = block.name, ""
    while prefix and prefix not in names:
        prefix, _, last = prefix.rpartition(".")
        label = f".{last}{label}"
    return f"{names[prefix]}{label}" if prefix else block.name


def _moved(adapter: Placed, labels: Mapping[str, str], names: Mapping[str, str]) -> Placed:
    up = names.get(adapter.up, adapter.up)
    return replace(adapter, wrapped=labels.get(adapter.wrapped, adapter.wrapped), up=up)


def _renamed_block(block: Block, names: Mapping[str, str]) -> Block:
    biases = (replace(b, parameter=names.get(b.parameter, b.parameter)) for b in block.biases)
    return replace(
        block,
        name=_block_name(block, names),
        weight=names.get(block.weight, block.weight),
        biases=tuple(biases),
    )
