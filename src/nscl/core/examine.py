"""Measure a memory against its model: the report of what is held, the drift of old outputs."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nscl.core import statistics as running
from nscl.core.blocks import Block, bias_vectors, outputs_per_group, weight_matrix
from nscl.core.covariance import Covariance, quadratic
from nscl.core.inventory import Inventory
from nscl.core.kronecker import Kronecker
from nscl.core.layers import running_statistics
from nscl.core.report import Forgetting, LayerForgetting, LayerReport, Report, Shift, directions
from nscl.core.rules import Proximal, Rule
from nscl.core.shards import whole
from nscl.core.state import State


def measure_shifts(state: State, found: Inventory) -> tuple[Shift, ...]:
    """How far every norm layer's running statistics have moved since the last ``remember``."""
    return tuple(
        Shift(name, running.shift(kept, running_statistics(found.norms[name])))
        for name, kept in state.statistics.items()
    )


def write_report(
    state: State,
    found: Inventory,
    options: Mapping[str, Any],
    optimizers: tuple[str, ...],
    rule: Rule,
    remarks: tuple[str, ...] = (),
) -> Report:
    """One line per layer, in the model's order."""
    layers = [_block_line(state, block, rule) for block in found.blocks.values()]
    norm_parameters = found.norm_parameters()
    ewc = "diagonal" if isinstance(rule, Proximal) else "ewc"
    by_option = {"ewc": ewc, "freeze": "frozen", "train": "left free"}
    names = found.names
    for name, module in found.norms.items():
        mine = [names[id(p)] for p in module.parameters(recurse=False)]
        if mine:
            how = by_option[options["norms"]]
            held = all(n in state.anchors or n in state.held for n in mine)
            if any(n not in norm_parameters for n in mine):
                how = "excluded"
            elif how != "left free" and not held:
                how = "free until remembered"
            features = sum(found.parameters[n].numel() for n in mine)
            layers.append(_line(name, type(module).__name__, features, how))
    for name, parameter in found.plain.items():
        how = by_option[options["norms"]]
        if how != "left free" and name not in state.anchors and name not in state.held:
            how = "free until remembered"
        layers.append(_line(name, "parameter", parameter.numel(), how))
    for name, owner in found.unsupported.items():
        if name in found.parameters:
            later = options["unsupported"] == "freeze"
            free = "free until remembered" if later else "left free"
            how = "frozen" if name in state.held else free
            layers.append(_line(name, owner, found.parameters[name].numel(), how))
    layers += [
        _line(name, "parameter", found.parameters[name].numel(), "excluded")
        for name in sorted(found.excluded)
    ]
    return Report(
        tuple(layers), measure_shifts(state, found), optimizers, state.tasks, state.nbytes, remarks
    )


def _block_line(state: State, block: Block, rule: Rule) -> LayerReport:
    spectrum = state.spectra.get(block.name)
    if spectrum is None:
        size = block.width * block.groups
        return LayerReport(block.name, block.kind, size, size, 0.0, 1.0, "free until remembered")
    return LayerReport(
        name=block.name,
        kind=block.kind,
        features=spectrum.features,
        free=directions(spectrum.free, soft=rule.soft and block.layout != "tokens"),
        share=spectrum.share,
        condition=spectrum.condition,
        **{"protected_by": "null space"} | _both_factors(state, block),
    )


def _both_factors(state: State, block: Block) -> dict[str, Any]:
    """What a proximal rule leaves free, over all numbers of a block's matrix."""
    kronecker = state.projections[block.name]
    if not isinstance(kronecker, Kronecker):
        return {}
    out = outputs_per_group(block, state.reference[block.weight].shape)
    return {
        "protected_by": "inputs" if kronecker.gains is None else "both factors",
        "dimensions": block.groups * out * block.width,
        "free_dimensions": kronecker.effective_free(out, block.width),
    }


def _line(name: str, kind: str, features: int, how: str) -> LayerReport:
    free = 0 if how in ("frozen", "ewc", "diagonal") else features
    return LayerReport(name, kind, features, free, 0.0, 1.0, how)


@torch.no_grad()
def measure_forgetting(state: State, found: Inventory, shifts: tuple[Shift, ...]) -> Forgetting:
    """Exact mean squared output change per layer, by the kept covariances."""
    layers, sums = [], [0.0, 0.0, 0.0, 0.0]
    for name, covariance in state.covariances.items():
        block = state.blocks[name]
        before = {p: whole(state.reference[p]).double() for p in block.parameters}
        now = {p: whole(found.parameters[p].detach()).double().cpu() for p in block.parameters}
        moved = {p: now[p] - before[p].cpu() for p in now}
        was = {p: t.cpu() for p, t in before.items()}
        figures = [_energy(block, covariance, values) for values in (moved, was)]
        gradient = state.gradients.get(name)
        if gradient is not None:
            figures += [_energy(block, covariance, values, gradient) for values in (moved, was)]
        sums = [a + b for a, b in zip(sums, (*figures, 0.0, 0.0)[:4], strict=True)]
        layers.append(_forgotten(name, figures))
    total = _forgotten("total", sums if state.gradients else sums[:2])
    return Forgetting(tuple(layers), shifts, total)


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
    gradient: Covariance | None = None,
) -> float:
    weight = weight_matrix(block, values[block.weight])
    if block.layout == "tokens":
        return quadratic(covariance, weight, gradient=gradient)
    return quadratic(covariance, weight, bias_vectors(block, values), gradient=gradient)
