"""Measure a memory against its model: the report of what is held, the drift of old outputs."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from nscl.core import statistics as running
from nscl.core.blocks import Block, bias_vectors, weight_matrix
from nscl.core.covariance import Covariance, quadratic
from nscl.core.inventory import Inventory
from nscl.core.layers import running_statistics
from nscl.core.report import Forgetting, LayerForgetting, LayerReport, Report, Shift, directions
from nscl.core.rules import Rule
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
    by_option = {"ewc": "ewc", "freeze": "frozen", "train": "left free"}
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
        protected_by="null space",
    )


def _line(name: str, kind: str, features: int, how: str) -> LayerReport:
    free = 0 if how in ("frozen", "ewc") else features
    return LayerReport(name, kind, features, free, 0.0, 1.0, how)


@torch.no_grad()
def measure_forgetting(state: State, found: Inventory, shifts: tuple[Shift, ...]) -> Forgetting:
    """Exact mean squared output change per layer, by the kept covariances."""
    layers, drift, energy = [], 0.0, 0.0
    for name, covariance in state.covariances.items():
        block = state.blocks[name]
        before = {p: whole(state.reference[p]).double() for p in block.parameters}
        now = {p: whole(found.parameters[p].detach()).double().cpu() for p in block.parameters}
        moved = _energy(block, covariance, {p: now[p] - before[p].cpu() for p in now})
        was = _energy(block, covariance, {p: t.cpu() for p, t in before.items()})
        layers.append(LayerForgetting(name, moved, moved / was if was > 0 else 0.0))
        drift, energy = drift + moved, energy + was
    total = LayerForgetting("total", drift, drift / energy if energy > 0 else 0.0)
    return Forgetting(tuple(layers), shifts, total)


def _energy(block: Block, covariance: Covariance, values: Mapping[str, Tensor]) -> float:
    weight = weight_matrix(block, values[block.weight])
    if block.layout == "tokens":
        return quadratic(covariance, weight)
    return quadratic(covariance, weight, bias_vectors(block, values))
