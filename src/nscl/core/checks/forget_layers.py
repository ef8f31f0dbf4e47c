"""Dropping layers from a memory: those that were replaced or removed on purpose."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import nn

from nscl.core.model.block import Block
from nscl.core.model.name_patterns import as_patterns, is_in, is_meant
from nscl.core.report import listed
from nscl.core.state import State
from nscl.errors import NsclError


def drop_layers(state: State, names: Sequence[str]) -> State:
    """The state as if the layers and parameters that these names mean had never been seen."""
    patterns = as_patterns(names)
    blocks = {
        name: block
        for name, block in state.blocks.items()
        if not (is_meant(name, patterns) or is_meant(block.weight, patterns))
    }
    anchors = {n: a for n, a in state.anchors.items() if not is_meant(n, patterns)}
    held = frozenset(name for name in state.held if not is_meant(name, patterns))
    kept = _parameters(blocks) | held | anchors.keys()
    meant = {name for name in state.reference if is_meant(name, patterns)}
    dropped = (meant | _parameters(state.blocks)) - kept
    return replace(
        state,
        blocks=blocks,
        covariances={n: c for n, c in state.covariances.items() if n in blocks},
        spectra={n: s for n, s in state.spectra.items() if n in blocks},
        projections={n: p for n, p in state.projections.items() if n in blocks},
        gradients={n: g for n, g in state.gradients.items() if n in blocks},
        adapters={n: a for n, a in state.adapters.items() if {n, a.wrapped} <= blocks.keys()},
        rest={n: t for n, t in state.rest.items() if not is_meant(n, patterns)},
        reference={n: t for n, t in state.reference.items() if n not in dropped},
        anchors=anchors,
        held=held,
        statistics={n: s for n, s in state.statistics.items() if not is_meant(n, patterns)},
    )


def _parameters(blocks: Mapping[str, Block]) -> set[str]:
    return {name for block in blocks.values() for name in block.parameters}


def _knows(state: State, pattern: str) -> bool:
    """Whether anything was remembered that a pattern means."""
    names = (*state.blocks, *(b.weight for b in state.blocks.values()), *state.anchors)
    return any(is_meant(name, [pattern]) for name in (*names, *state.held, *state.statistics))


def check_known(state: State, names: Sequence[str]) -> None:
    """A name under which nothing was remembered is a mistake."""
    for pattern in as_patterns(names):
        if not _knows(state, pattern):
            raise NsclError(
                f"nothing was remembered of {pattern!r}; remembered are: "
                f"{listed([*state.blocks, *state.statistics]) or 'no layers yet'}"
            )


def excluded_from(
    model: nn.Module, state: State, saved: Sequence[str], names: Sequence[str]
) -> list[str]:
    """What a loaded memory excludes: the saved patterns and the given ones.

    A layer that is gone from the model is not excluded, if the file shows that it was there.
    """
    given = as_patterns(names)
    gone = [p for p in given if (p in saved or _knows(state, p)) and not is_in(model, p)]
    return [p for p in dict.fromkeys((*saved, *given)) if p not in gone]
