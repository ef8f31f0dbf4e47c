"""What has moved since the last ``remember`` without a share in the total of ``forgetting()``.

A layer has a covariance and a norm layer its F. For everything else, nothing remembered says what
a movement costs: parameters that an option leaves free, layers that no remembered batch reached,
buffers. The weights and buffers kept for ``recall`` show that they moved, and how far.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nscl.core.distributed.fsdp import whole
from nscl.core.forgetting.parameter_movement import relative_norm
from nscl.core.model.inventory import Inventory
from nscl.core.model.name_patterns import clean
from nscl.core.options import MemoryOptions
from nscl.core.report import Uncounted
from nscl.core.state import State

_UNREACHED = "no remembered batch reached this"


@dataclass(frozen=True)
class _Change:
    """A tensor as it was and as it is, in float64; without a past if it is new."""

    now: Tensor
    before: Tensor | None

    @property
    def is_moved(self) -> bool:
        return self.before is None or not torch.equal(self.now, self.before)


@torch.no_grad()
def find_uncounted(
    model: nn.Module,
    state: State,
    found: Inventory,
    options: MemoryOptions,
    counted: Set[str],
) -> tuple[Uncounted, ...]:
    """Everything that moved and is neither anchored nor a parameter of a ``counted`` layer."""
    if not state.tasks:
        return ()
    rest = _others(model, state, found, counted | state.anchors.keys())
    parts: dict[tuple[str, str], list[_Change]] = {}
    for name, now in rest.items():
        why = _why(name, state, found, options)
        change = _change(now, state.reference.get(name, state.rest.get(name)))
        if change.before is None:
            why = "not known at the last remember"
        parts.setdefault((_part(name, found), why), []).append(change)
    return tuple(
        Uncounted(name, why, _distance(changes))
        for (name, why), changes in parts.items()
        if any(change.is_moved for change in changes)
    )


def _others(
    model: nn.Module, state: State, found: Inventory, counted: Set[str]
) -> dict[str, Tensor]:
    """Parameters and buffers by name, in the model's order: sharded ones are gathered in it."""
    parameters = {name: p.detach() for name, p in found.parameters.items() if name not in counted}
    measured = {f"{norm}.{key}" for norm, kept in state.statistics.items() for key in kept}
    buffers = {clean(name): buffer for name, buffer in model.named_buffers()}
    return parameters | {
        name: buffer
        for name, buffer in buffers.items()
        if name not in measured and name in state.rest and buffer.is_floating_point()
    }


def _change(now: Tensor, before: Tensor | None) -> _Change:
    """Compared in the tensor's own dtype: converting a model moves nothing."""
    here = whole(now).cpu()
    if before is None or before.shape != here.shape:
        return _Change(here.double(), None)
    return _Change(here.double(), whole(before).to("cpu", here.dtype).double())


def _distance(changes: list[_Change]) -> float | None:
    known = [(change.now, change.before) for change in changes if change.before is not None]
    if not known:
        return None
    return relative_norm([now - was for now, was in known], [was for _, was in known])


def _part(name: str, found: Inventory) -> str:
    """What the report calls it: a layer's parameters together, a plain parameter by itself."""
    if name in found.plain:
        return name
    of_block = found.of_weight.get(name)
    return of_block[0] if of_block and len(of_block) == 1 else name.rpartition(".")[0] or name


def _why(name: str, state: State, found: Inventory, options: MemoryOptions) -> str:
    for why in _reasons(name, state, found, options):
        return why
    return _UNREACHED


def _reasons(name: str, state: State, found: Inventory, options: MemoryOptions) -> Iterator[str]:
    if name not in found.parameters:
        yield "a buffer"
    if name in found.excluded:
        yield "excluded"
    if name in state.held:
        yield "frozen, but moved by something that is not protected"
    if name in found.unsupported and options.unsupported == "train":
        yield "left free by unsupported='train'"
    if name in state.reference:
        yield "nothing is kept to measure it by (keep_covariances=False)"
    yield from _of_elementwise(found.elementwise(), name, options)


def _of_elementwise(
    elementwise: Mapping[str, nn.Parameter], name: str, options: MemoryOptions
) -> Iterator[str]:
    if name in elementwise:
        if options.norms == "train":
            yield "left free by norms='train'"
        if options.norms == "ewc":
            yield f"{_UNREACHED}, nor does a gradient of its loss"
