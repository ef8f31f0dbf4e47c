"""What happens to displacements under a proximal rule: the plan of one optimizer.

Every so many steps each moving block is brought together, shrunk by its two factors and written
back. Only the correction is added to a parameter: where nothing is removed, it keeps every bit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from nscl.core.blocks import Bias, Block, weight_matrix, write_weight_matrix
from nscl.core.covariance import Covariance
from nscl.core.kronecker import Diagonal, Kronecker, make_diagonal
from nscl.core.precision import full_precision
from nscl.core.rules import Proximal
from nscl.core.shards import add_part, gathered, local, whole
from nscl.core.state import State, factorise
from nscl.core.updates import difference, project_precision


@dataclass(frozen=True)
class Factors:
    """A block whose outputs are mixed: all of it is needed at once."""

    block: Block
    has_weight: bool
    biases: tuple[Bias, ...]  # those that move
    kronecker: Kronecker
    allowance: float

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the displacements it changes; the first one's rate counts."""
        weight = (self.block.weight,) if self.has_weight else ()
        return (*weight, *(bias.parameter for bias in self.biases))

    def apply(self, deltas: Mapping[str, Tensor], rule: Proximal, rate: float) -> None:
        """Shrink whole displacements in place."""
        matrix = self._stacked(deltas)
        self.kronecker.shrink_(matrix, rule.multiplier, rate=rate, allowance=self.allowance)
        self._write(matrix, deltas)

    def _stacked(self, deltas: Mapping[str, Tensor]) -> Tensor:
        if self.block.layout == "tokens":
            return deltas[self.block.weight].mT[None].contiguous()
        parts = [weight_matrix(self.block, deltas[self.block.weight])] if self.has_weight else []
        return torch.cat([*parts, *(b[..., None] for b in self._bias_parts(deltas))], -1)

    def _write(self, matrix: Tensor, deltas: Mapping[str, Tensor]) -> None:
        if self.block.layout == "tokens":
            deltas[self.block.weight].copy_(matrix[0].mT)
            return
        start = self.block.features if self.has_weight else 0
        if self.has_weight:
            write_weight_matrix(self.block, matrix[..., :start], deltas[self.block.weight])
        for i, part in enumerate(self._bias_parts(deltas)):
            part.copy_(matrix[..., start + i])

    def _bias_parts(self, deltas: Mapping[str, Tensor]) -> list[Tensor]:
        length = self._outputs(deltas)
        return [
            deltas[bias.parameter][bias.start : bias.start + length].view(self.block.groups, -1)
            for bias in self.biases
        ]

    def _outputs(self, deltas: Mapping[str, Tensor]) -> int:
        if self.block.layout == "transposed":
            return next(deltas[b.parameter].shape[0] for b in self.biases) if self.biases else 0
        return self.block.stop - self.block.start


@dataclass(frozen=True)
class Elementwise:
    """A norm layer's or a plain parameter, each number by itself."""

    parameter: str
    diagonal: Diagonal
    allowance: float

    @property
    def parameters(self) -> tuple[str, ...]:
        """The name of the displacement it changes."""
        return (self.parameter,)

    def apply(self, deltas: Mapping[str, Tensor], rule: Proximal, rate: float) -> None:
        """Shrink the displacement in place."""
        delta = deltas[self.parameter]
        self.diagonal.shrink_(delta, rule.multiplier, rate=rate, allowance=self.allowance)


@dataclass
class ProximalPlan:
    """How the parameters of one optimizer are shrunk."""

    rule: Proximal
    parameters: dict[str, Tensor] = field(default_factory=dict)
    pieces: list[Factors | Elementwise] = field(default_factory=list)
    frozen: set[str] = field(default_factory=set)
    narrowed: set[str] = field(default_factory=set)

    @cached_property
    def devices(self) -> set[str]:
        """Kinds of devices that hold the parameters, the same in every step."""
        return {parameter.device.type for parameter in self.parameters.values()}

    @torch.no_grad()
    def treat(self, origins: Mapping[str, Tensor], rates: Mapping[str, float]) -> None:
        """Shrink the displacements from ``origins`` of what was moved, at its sum of rates."""
        with full_precision(*self.devices):  # a step may be taken inside of autocast
            for piece in self.pieces:
                if any(name in rates for name in piece.parameters):
                    self._treat(piece, origins, rates)
        for name in self.frozen & rates.keys():
            local(self.parameters[name].detach()).copy_(origins[name])

    def _treat(
        self,
        piece: Factors | Elementwise,
        origins: Mapping[str, Tensor],
        rates: Mapping[str, float],
    ) -> None:
        moved = {name: self._moved(name, origins) for name in piece.parameters}
        kept = {name: delta.clone() for name, delta in moved.items()}
        rate = next(rates[name] for name in piece.parameters if name in rates)
        piece.apply(kept, self.rule, rate)
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
    for name in state.projections:
        for piece in _pieces(state, rule, state.blocks[name], moving):
            plan.pieces.append(piece)
            plan.parameters |= {p: moving[p] for p in piece.parameters}
            if len(piece.biases) < len(state.blocks[name].biases) or not piece.has_weight:
                plan.narrowed.add(name)
    for name in sorted(state.anchors.keys() & moving.keys() - plan.frozen):
        plan.parameters[name] = moving[name]
        plan.pieces.append(_elementwise(name, state, rule, moving[name]))
    return plan


def _pieces(
    state: State, rule: Proximal, block: Block, moving: Mapping[str, Tensor]
) -> Iterator[Factors]:
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
    yield Factors(block, has_weight, biases, placed, rule.allowance(energy))


def _of_moving(
    state: State, rule: Proximal, block: Block, has_weight: bool, biases: Sequence[Bias]
) -> Kronecker:
    """A parameter that stays put takes its features out of those that others can lean on."""
    constants = [block.features + i for i, bias in enumerate(block.biases) if bias in biases]
    features = [*(range(block.features) if has_weight else ()), *constants]
    covariance, gradient = state.covariances[block.name], state.gradients.get(block.name)
    dtype = state.reference[block.weight].dtype
    _, found = factorise(block, covariance, gradient, rule, dtype=dtype, features=features)
    # In the unit of the whole layer: c̄ is a mean over all of its features.
    share = _mean_eigenvalue(covariance, features) / _mean_eigenvalue(covariance, None)
    return Kronecker(found.inputs, found.energies * share, found.outputs, found.gains)


def _mean_eigenvalue(covariance: Covariance, features: Sequence[int] | None) -> float:
    diagonal = covariance.dense().diagonal(dim1=-2, dim2=-1)
    return float((diagonal if features is None else diagonal[:, list(features)]).mean())


def _energy(state: State, block: Block) -> float:
    """``Σ r_ij (VᵀW*U)²_ij`` of the remembered weights."""
    kronecker = state.projections[block.name]
    assert isinstance(kronecker, Kronecker)
    biases = () if block.layout == "tokens" else block.biases
    piece = Factors(block, True, biases, kronecker, 0.0)
    values = {p: _whole_reference(state, p, kronecker) for p in piece.parameters}
    return kronecker.cost(piece._stacked(values))


def _whole_reference(state: State, name: str, like: Kronecker) -> Tensor:
    return whole(state.reference[name]).to(like.energies.device, like.energies.dtype)


def _elementwise(name: str, state: State, rule: Proximal, parameter: Tensor) -> Elementwise:
    diagonal = make_diagonal(state.anchors[name].fisher, tasks=state.tasks)
    ratios = diagonal.ratios.to(parameter.device, project_precision(parameter))
    reference = whole(state.reference[name]).to(ratios)
    # What a norm layer scales has unit size, so a weight or bias of 0 may still move as 1 may.
    cost = float((ratios * reference.square().clamp_min(1.0)).sum(dtype=torch.float64))
    return Elementwise(name, Diagonal(ratios), rule.allowance(cost))
