"""How far old outputs of each layer have moved, by the kept covariances or by projections."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from nscl.core.adapters.movement import parts_of_adapters, products, remembered
from nscl.core.covariance.covariance import Covariance, quadratic
from nscl.core.distributed.fsdp import whole
from nscl.core.model.block import Block, bias_vectors, weight_matrix
from nscl.core.model.inventory import Inventory
from nscl.core.projection.low_rank_projector import Projection
from nscl.core.report import LayerForgetting
from nscl.core.state import State

Measured = tuple[tuple[LayerForgetting, ...], LayerForgetting]  # layers and their total


@torch.no_grad()
def by_covariances(state: State, found: Inventory) -> Measured:
    """Exact mean squared output change per layer, by the kept covariances."""
    layers, sums = [], [0.0, 0.0, 0.0, 0.0]
    apart = parts_of_adapters(state)  # they move what the wrapped layer answers
    added, had = products(state, found.parameters), products(state, remembered(state))
    for name in (name for name in state.covariances if name not in apart):
        covariance, block = state.covariances[name], state.blocks[name]
        before = {p: whole(state.reference[p]).double() for p in block.parameters}
        now = {p: whole(found.parameters[p].detach()).double().cpu() for p in block.parameters}
        moved = {p: now[p] - before[p].cpu() for p in now}
        was = {p: t.cpu() for p, t in before.items()}
        beside = (added[name] - had[name], had[name]) if name in had else (None, None)
        both = list(zip((moved, was), beside, strict=True))
        figures = [_energy(block, covariance, values, more) for values, more in both]
        gradient = state.gradients.get(name)
        if gradient is not None:
            figures += [_energy(block, covariance, v, more, gradient) for v, more in both]
        sums = [a + b for a, b in zip(sums, (*figures, 0.0, 0.0)[:4], strict=True)]
        if name in had or not state.is_frozen(block):
            layers.append(_forgotten(name, figures))
    return tuple(layers), _forgotten("total", sums if state.gradients else sums[:2])


@torch.no_grad()
def by_projections(state: State, found: Inventory) -> Measured:
    """Movement since the last pass in the directions that projections hold.

    For memories that keep no covariances. With P a projector, what it takes away from a
    displacement is ``ΔW (I − P)``. Drift is its inner product with ΔW, and ``relative`` compares it
    with the same of the weights.
    """
    layers, drift, energy = [], 0.0, 0.0
    for name, projection in state.projections.items():
        block = state.blocks[name]
        # Without a reference no pass has run it, and there is nothing it could have moved from.
        if isinstance(projection, Projection) and state.reference.keys() >= set(block.parameters):
            before = {p: whole(state.reference[p]).double().cpu() for p in block.parameters}
            now = {p: whole(found.parameters[p].detach()).double().cpu() for p in block.parameters}
            held = projection.at_remember
            moved = _held_energy(block, held, {p: now[p] - before[p] for p in now})
            was = _held_energy(block, held, before)
            layers.append(_forgotten(name, (moved, was)))
            drift, energy = drift + moved, energy + was
    return tuple(layers), _forgotten("total", (drift, energy))


def _held_energy(block: Block, projection: Projection, values: Mapping[str, Tensor]) -> float:
    """``⟨D, D (I − P)⟩`` of a block's displacement D."""
    weight = weight_matrix(block, values[block.weight])
    constants = [bias[..., None] for bias in bias_vectors(block, values)]
    stacked = torch.cat([weight, *constants], -1)
    kept = stacked.clone()
    projection.to(device=kept.device, dtype=kept.dtype).apply_(kept)
    return float((stacked * (stacked - kept)).sum())


def _forgotten(name: str, figures: Sequence[float]) -> LayerForgetting:
    """From energies of the movement and of the weights, plain and weighed by gradients."""
    moved, was, *weighed = figures
    relative = moved / was if was > 0 else 0.0
    if not weighed:
        return LayerForgetting(name, moved, relative)
    cost, whole_cost = weighed
    share = cost / whole_cost if whole_cost > 0 else 0.0
    return LayerForgetting(name, moved, relative, loss=0.5 * cost, weighed=share)


def _energy(
    block: Block,
    covariance: Covariance,
    values: Mapping[str, Tensor],
    beside: Tensor | None,
    gradient: Covariance | None = None,
) -> float:
    """Of a block's weights, and of what adapters add to them."""
    weight = weight_matrix(block, values[block.weight])
    weight = weight if beside is None else weight + beside
    if block.layout == "tokens":
        return quadratic(covariance, weight, gradient=gradient)
    return quadratic(covariance, weight, bias_vectors(block, values), gradient=gradient)
