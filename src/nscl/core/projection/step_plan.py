"""What happens to one optimizer step's displacement: which parameters, which projections.

A plan is made once per optimizer and memory, then applied after every step: all of a step's cost is
the thin matrix products in ``Projection``.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from nscl.core.distributed.fsdp import local, part_of
from nscl.core.model.block import Bias, Block
from nscl.core.projection.block_update import BlockUpdate, block_updates, hold_bias
from nscl.core.projection.kronecker import Kronecker
from nscl.core.projection.low_rank_projector import Mask, Projection
from nscl.core.projection.precision import full_precision
from nscl.core.projection.projector import analyse_rows
from nscl.core.projection.rules import Rule
from nscl.core.state import State
from nscl.errors import UnsupportedError


@dataclass
class StepPlan:
    """How the parameters of one optimizer are projected."""

    parameters: dict[str, Tensor] = field(default_factory=dict)
    updates: list[BlockUpdate] = field(default_factory=list)
    frozen: set[str] = field(default_factory=set)
    narrowed: set[str] = field(default_factory=set)  # blocks projected without all their biases

    @cached_property
    def devices(self) -> set[str]:
        """Kinds of devices that hold the parameters, the same in every step."""
        return {parameter.device.type for parameter in self.parameters.values()}

    def snapshot(self) -> dict[str, Tensor]:
        """Copy the parameters before a step."""
        return {name: local(p.detach()).clone() for name, p in self.parameters.items()}

    def project(self, before: Mapping[str, Tensor], *, touched: Set[str] | None = None) -> None:
        """Replace each parameter by where it was before plus the projected displacement from there.

        ``touched`` leaves all else as it is: a soft projection must not shrink the displacement of
        a layer that this step has not moved.
        """
        chosen = [p for p in self.updates if touched is None or touched & set(p.parameters)]
        names = {name for update in chosen for name in update.parameters}
        deltas = {
            name: difference(local(self.parameters[name].detach()), before[name]) for name in names
        }
        with full_precision(*self.devices):  # a step may be taken inside of autocast
            for update in chosen:
                update.apply(deltas)
        for name in self.frozen if touched is None else self.frozen & touched:
            local(self.parameters[name].detach()).copy_(before[name])
        for name, delta in deltas.items():
            local(self.parameters[name].detach()).copy_(delta.add_(before[name]))

    def treat(self, origins: Mapping[str, Tensor], rates: Mapping[str, float]) -> None:
        """Project the displacements from ``origins`` of what was moved; rates do not matter."""
        self.project(origins, touched=rates.keys())


def make_plan(
    state: State, rule: Rule | None, moving: Mapping[str, Tensor], *, frobenius: bool
) -> StepPlan:
    """Plan for the parameters ``moving`` with one optimizer; no rule: projections are given."""
    plan = StepPlan(frozen={name for name in moving if name in state.held})
    plan.parameters = {name: moving[name] for name in sorted(plan.frozen)}
    masks: list[BlockUpdate] = []
    still: list[BlockUpdate] = []
    for name, projection in state.projections.items():
        block = state.blocks[name]
        plan.parameters |= {p: moving[p] for p in block.parameters if p in moving}
        if isinstance(projection, Kronecker):
            continue  # treated by a proximal plan
        if block.layout == "tokens":
            if block.weight in moving:
                masks += block_updates(block, beside(moving[block.weight], projection), moving)
        elif block.weight in moving:
            plan.updates += _matrix_updates(plan, block, projection, state, rule, moving, frobenius)
        else:
            # A constant is the same for every input: there is no direction in which a bias alone
            # could move without moving all old outputs.
            held = (bias for bias in block.biases if bias.parameter in moving)
            still += [update for bias in held for update in hold_bias(block, bias, moving)]
    # Masks come after: they may only hold more of what a tied layer has projected.
    plan.updates += masks + still
    return plan


def _matrix_updates(
    plan: StepPlan,
    block: Block,
    projection: Projection | Mask,
    state: State,
    rule: Rule | None,
    moving: Mapping[str, Tensor],
    frobenius: bool,
) -> Iterator[BlockUpdate]:
    biases = [bias for bias in block.biases if bias.parameter in moving]
    if len(biases) < len(block.biases):
        plan.narrowed.add(block.name)
        block, projection = _with_biases(biases, state, block.name, rule, frobenius)
    yield from block_updates(block, beside(moving[block.weight], projection), moving)


def origins(
    parameters: Mapping[str, Tensor],
    state: State,
    moving: Mapping[str, Tensor],
    everything: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Where whole displacements are counted from: the weights at the last ``remember``.

    Weight and bias may have moved together so that old outputs did not. If then one of them is
    fixed, away from its place, the other is counted from where it is now: its way back to the
    reference would be a movement of old outputs.
    """
    found = {name: part_of(state.reference[name], name, p) for name, p in parameters.items()}
    for block in state.blocks.values():
        fixed = [name for name in block.parameters if name not in moving]
        if any(_left_its_place(name, state, everything[name]) for name in fixed):
            for name in found.keys() & set(block.parameters):
                found[name] = local(parameters[name].detach()).clone()
    return found


def _left_its_place(name: str, state: State, parameter: Tensor) -> bool:
    now = local(parameter.detach())
    return not torch.equal(now, part_of(state.reference[name], name, parameter))


def difference(now: Tensor, before: Tensor) -> Tensor:
    """How far a parameter is from where it was, in the precision that it is projected in."""
    precision = project_precision(now)
    return (now.to(precision) - before.to(precision)).contiguous()


def project_precision(tensor: Tensor) -> torch.dtype:
    """In which precision a parameter's displacement is multiplied."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def beside(parameter: Tensor, projection: Projection | Mask) -> Projection | Mask:
    """A projection where, and in the precision in which, its parameter is projected."""
    return projection.to(device=parameter.device, dtype=project_precision(parameter))


def _with_biases(
    kept: list[Bias], state: State, name: str, rule: Rule | None, frobenius: bool
) -> tuple[Block, Projection]:
    """A bias that stays put takes its constant out of the features the weight can lean on."""
    if rule is None:
        raise UnsupportedError(
            f"'{name}' is projected together with its bias, which this optimizer does not move: "
            "let one optimizer train both, or use a memory with a rule instead of a projector"
        )
    block, covariance = state.blocks[name], state.covariances[name]
    constants = [block.features + i for i, bias in enumerate(block.biases) if bias in kept]
    features = [*range(block.features), *constants]
    _, projection = analyse_rows(block, covariance, rule, frobenius=frobenius, features=features)
    return replace(block, biases=tuple(kept)), projection
