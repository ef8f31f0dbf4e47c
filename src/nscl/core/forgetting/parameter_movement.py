"""How far norm layers and plain parameters have moved, each number weighed by its share of F.

F of one task is a mean over samples (``norms/fisher.py``), and a memory keeps ΣF over its tasks. So
``½ Σ_i F_i Δw_i²`` with F = ΣF / tasks predicts the rise of the loss per sample, averaged over the
tasks: to second order, and as if no two numbers acted together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nscl.core.distributed.fsdp import whole
from nscl.core.model.inventory import Inventory
from nscl.core.report import ParameterForgetting
from nscl.core.state import State


@dataclass(frozen=True)
class _Moved:
    """One anchored parameter, in float64: its displacement, its remembered value and F."""

    delta: Tensor
    before: Tensor
    fisher: Tensor


@torch.no_grad()
def measure_parameters(state: State, found: Inventory) -> tuple[ParameterForgetting, ...]:
    """One entry for each norm layer and each plain parameter that is anchored."""
    return tuple(
        _together(name, [_moved(p, state, found) for p in parameters])
        for name, parameters in _parts(state, found)
    )


def _parts(state: State, found: Inventory) -> Iterator[tuple[str, list[str]]]:
    """Names as in the report: a norm layer with what it has anchored, a plain one by itself."""
    names, anchored = found.names, state.anchors.keys() & state.reference.keys()
    for name, module in found.norms.items():
        mine = [names[id(p)] for p in module.parameters(recurse=False)]
        if anchored.intersection(mine):
            yield name, [p for p in mine if p in anchored]
    for name in found.plain:
        if name in anchored:
            yield name, [name]


def _moved(name: str, state: State, found: Inventory) -> _Moved:
    now, before = found.parameters[name].detach(), state.reference[name]
    was = whole(before).double().cpu()
    fisher = state.anchors[name].fisher.double().cpu() / state.tasks
    return _Moved(whole(now).double().cpu() - was, was, fisher)


def _together(name: str, parts: Sequence[_Moved]) -> ParameterForgetting:
    cost = sum(float((p.fisher * p.delta.square()).sum()) for p in parts)
    # What a norm layer scales has unit size, so a number counts as 1 at least.
    whole_cost = sum(float((p.fisher * p.before.square().clamp_min(1.0)).sum()) for p in parts)
    return ParameterForgetting(
        name=name,
        moved=relative_norm([p.delta for p in parts], [p.before for p in parts]),
        loss=0.5 * cost,
        weighed=cost / whole_cost if whole_cost > 0 else 0.0,
    )


def relative_norm(deltas: Sequence[Tensor], before: Sequence[Tensor]) -> float:
    """``‖Δw‖ / ‖w‖`` of several tensors together; where all of w is 0, it counts as 1.

    >>> relative_norm([torch.tensor([3.0, 4.0])], [torch.tensor([0.0, 10.0])])
    0.5
    """
    moved = sum(float(delta.square().sum()) for delta in deltas)
    size = sum(float(tensor.square().sum()) for tensor in before)
    return float((moved / (size or max(1, sum(t.numel() for t in before)))) ** 0.5)
