"""What happens to displacements under a proximal rule: the plan of one optimizer.

Every few steps each moving block is brought together, shrunk by its two factors and written
back. Only the correction is added to a parameter: where nothing is removed, it keeps every bit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from nscl.core.covariance.covariance import Covariance
from nscl.core.distributed.fsdp import add_part, gathered, local, whole
from nscl.core.model.block import Bias, Block
from nscl.core.projection.kronecker import Diagonal, Kronecker, make_diagonal
from nscl.core.projection.low_rank_projector import Projection
from nscl.core.projection.precision import full_precision
from nscl.core.projection.projector import factorise
from nscl.core.projection.proximal.shared_parameters import apply_together, sharing_groups
from nscl.core.projection.proximal.updates import (
    ElementwiseUpdate,
    KroneckerUpdate,
    PlacedUpdate,
    Update,
)
from nscl.core.projection.rules import Proximal
from nscl.core.projection.step_plan import beside, difference, project_precision
from nscl.core.state import State


@dataclass
class ProximalPlan:
    """How the parameters of one optimizer are shrunk."""

    rule: Proximal
    parameters: dict[str, Tensor] = field(default_factory=dict)
    updates: list[Update] = field(default_factory=list)
    frozen: set[str] = field(default_factory=set)
    narrowed: set[str] = field(default_factory=set)

    @cached_property
    def devices(self) -> set[str]:
        """Kinds of devices that hold the parameters, the same in every step."""
        return {parameter.device.type for parameter in self.parameters.values()}

    @cached_property
    def _groups(self) -> list[list[Update]]:
        return sharing_groups(self.updates)

    @torch.no_grad()
    def treat(self, origins: Mapping[str, Tensor], rates: Mapping[str, float]) -> None:
        """Shrink the displacements from ``origins`` of what was moved, at its sum of rates."""
        with full_precision(*self.devices):  # a step may be taken inside of autocast
            for updates in self._groups:
                if any(name in rates for update in updates for name in update.parameters):
                    self._treat(updates, origins, rates)
        for name in self.frozen & rates.keys():
            local(self.parameters[name].detach()).copy_(origins[name])

    def _treat(
        self,
        updates: Sequence[Update],
        origins: Mapping[str, Tensor],
        rates: Mapping[str, float],
    ) -> None:
        names = dict.fromkeys(name for update in updates for name in update.parameters)
        moved = {name: self._moved(name, origins) for name in names}
        kept = {name: delta.clone() for name, delta in moved.items()}
        apply_together(updates, kept, self.rule, rates)
        for name, delta in moved.items():
            parameter = self.parameters[name]
            add_part(kept[name].sub_(delta), name, parameter)

    def _moved(self, name: str, origins: Mapping[str, Tensor]) -> Tensor:
        parameter = self.parameters[name]
        return gathered(difference(local(parameter.detach()), origins[name]), parameter)


def make_proximal_plan(state: State, rule: Proximal, moving: Mapping[str, Tensor]) -> ProximalPlan:
    """Plan for the parameters ``moving`` with one optimizer."""
    plan = ProximalPlan(rule, frozen={name for name in moving if name in state.held})
    plan.parameters = {name: moving[name] for name in sorted(plan.frozen)}
    for name, projection in state.projections.items():
        if isinstance(projection, Projection):
            _add_placed(plan, state.blocks[name], projection, moving)
        for update in _kronecker_updates(state, rule, state.blocks[name], moving):
            plan.updates.append(update)
            plan.parameters |= {p: moving[p] for p in update.parameters}
            if len(update.biases) < len(state.blocks[name].biases) or not update.has_weight:
                plan.narrowed.add(name)
    for name in sorted(state.anchors.keys() & moving.keys() - plan.frozen):
        plan.parameters[name] = moving[name]
        plan.updates.append(_elementwise(name, state, rule, moving[name]))
    return plan


def _add_placed(
    plan: ProximalPlan, block: Block, projection: Projection, moving: Mapping[str, Tensor]
) -> None:
    """A block without biases: what an adapter's first matrix is."""
    if block.weight in moving:
        here = beside(moving[block.weight], projection)
        assert isinstance(here, Projection)
        plan.updates.append(PlacedUpdate(block, here))
        plan.parameters[block.weight] = moving[block.weight]


def _kronecker_updates(
    state: State, rule: Proximal, block: Block, moving: Mapping[str, Tensor]
) -> Iterator[KroneckerUpdate]:
    kronecker = state.projections[block.name]
    has_weight, tokens = block.weight in moving, block.layout == "tokens"
    biases = () if tokens else tuple(b for b in block.biases if b.parameter in moving)
    if not isinstance(kronecker, Kronecker) or not (has_weight or biases):
        return
    like = moving[block.weight if has_weight else biases[0].parameter]
    if not tokens and (not has_weight or len(biases) < len(block.biases)):
        kronecker = _of_moving(state, rule, block, has_weight, biases)
    # Allowances compare with all that the layer does, also with the part that stays.
    energy = _energy(state, block)
    placed = kronecker.to(device=like.device, dtype=project_precision(like))
    yield KroneckerUpdate(block, has_weight, biases, placed, rule.allowance(energy))


def _of_moving(
    state: State, rule: Proximal, block: Block, has_weight: bool, biases: Sequence[Bias]
) -> Kronecker:
    """A parameter that stays put takes its features out of those that others can lean on."""
    constants = [block.features + i for i, bias in enumerate(block.biases) if bias in biases]
    features = [*(range(block.features) if has_weight else ()), *constants]
    covariance, gradient = state.covariances[block.name], state.gradients.get(block.name)
    dtype = state.reference[block.weight].dtype
    found, _ = factorise(block, covariance, gradient, rule, dtype=dtype, features=features)
    # In the unit of the whole layer: c̄ is a mean over all of its features.
    share = _mean_eigenvalue(covariance, features) / _mean_eigenvalue(covariance, None)
    return found.scaled(share)


def _mean_eigenvalue(covariance: Covariance, features: Sequence[int] | None) -> float:
    diagonal = covariance.diagonal()
    return float((diagonal if features is None else diagonal[:, list(features)]).mean())


def _energy(state: State, block: Block) -> float:
    """``Σ r_ij (VᵀW*U)²_ij`` of the remembered weights."""
    kronecker = state.projections[block.name]
    assert isinstance(kronecker, Kronecker)
    biases = () if block.layout == "tokens" else block.biases
    update = KroneckerUpdate(block, True, biases, kronecker, 0.0)
    values = {p: _whole_reference(state, p, kronecker) for p in update.parameters}
    return kronecker.cost(update.stacked(values))


def _whole_reference(state: State, name: str, like: Kronecker) -> Tensor:
    return whole(state.reference[name]).to(like.energies.device, like.energies.dtype)


def _elementwise(name: str, state: State, rule: Proximal, parameter: Tensor) -> ElementwiseUpdate:
    diagonal = make_diagonal(state.anchors[name].fisher, tasks=state.tasks)
    ratios = diagonal.ratios.to(parameter.device, project_precision(parameter))
    reference = whole(state.reference[name]).to(ratios)
    # What a norm layer scales has unit size, so a weight or bias of 0 may still move as 1 may.
    cost = float((ratios * reference.square().clamp_min(1.0)).sum(dtype=torch.float64))
    return ElementwiseUpdate(name, Diagonal(ratios), rule.allowance(cost))
