"""What a memory holds of each layer: the lines of its report."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from nscl.core.forgetting.measure import measure_shifts
from nscl.core.model.block import Block, outputs_per_group
from nscl.core.model.inventory import Inventory
from nscl.core.projection.kronecker import Kronecker
from nscl.core.projection.rules import Proximal, Rule
from nscl.core.report import LayerReport, Report, directions, listed
from nscl.core.state import State


def write_report(
    state: State,
    found: Inventory,
    options: Mapping[str, Any],
    optimizers: tuple[str, ...],
    rule: Rule | None,
    remarks: tuple[str, ...] = (),
) -> Report:
    """One line per layer, in the model's order; no rule where a projector projects."""
    ewc = "diagonal" if isinstance(rule, Proximal) else "ewc"
    held_by = {"ewc": ewc, "freeze": "frozen", "train": "left free"}[options["norms"]]
    layers = (
        *(
            _block_line(state, block, rule)
            for block in found.blocks.values()
            if not state.is_frozen(block)
        ),
        *_norm_lines(state, found, held_by),
        *_plain_lines(state, found, held_by),
        *_unsupported_lines(state, found, freezes=options["unsupported"] == "freeze"),
        *(
            _line(name, "parameter", found.parameters[name].numel(), "excluded")
            for name in sorted(found.excluded)
        ),
    )
    shifts = measure_shifts(state, found)
    remarks = (*remarks, *_describe_computed(found), *_set_aside(state))
    written = None if rule is None else options["rule"]
    return Report(layers, shifts, optimizers, state.tasks, state.nbytes, remarks, written)


def _describe_computed(found: Inventory) -> Iterator[str]:
    """The remark that these layers have no null space: none of their calls multiplies one."""
    trained = [name for name, p in found.plain.items() if p.requires_grad]
    names = [
        name or "model"
        for name in found.computed.values()
        if any(parameter.startswith(f"{name}." if name else "") for parameter in trained)
    ]
    if names:
        yield (
            f"no null space: {listed(names)}: the weight is computed (a parametrization) or used "
            "by another module's function, so it is held number by number, as norms= says"
        )


def _set_aside(state: State) -> Iterator[str]:
    idle = sum(state.is_frozen(block) for block in state.blocks.values())
    if idle:
        yield f"{idle} frozen layers are remembered, but neither decomposed nor listed"


def _norm_lines(state: State, found: Inventory, held_by: str) -> Iterator[LayerReport]:
    names, norm_parameters = found.names, found.norm_parameters()
    for name, module in found.norms.items():
        mine = [names[id(p)] for p in module.parameters(recurse=False)]
        if mine and not state.frozen.issuperset(mine):
            how = "excluded"
            if all(n in norm_parameters for n in mine):
                how = _now_or_later(state, mine, held_by)
            features = sum(found.parameters[n].numel() for n in mine)
            yield _line(name, type(module).__name__, features, how)


def _plain_lines(state: State, found: Inventory, held_by: str) -> Iterator[LayerReport]:
    for name, parameter in found.plain.items():
        if name in state.frozen:
            continue
        how = _now_or_later(state, [name], held_by)
        yield _line(name, "parameter", parameter.numel(), how)


def _now_or_later(state: State, parameters: list[str], held_by: str) -> str:
    held = all(name in state.anchors or name in state.held for name in parameters)
    return held_by if held or held_by == "left free" else "free until remembered"


def _unsupported_lines(state: State, found: Inventory, *, freezes: bool) -> Iterator[LayerReport]:
    free = "free until remembered" if freezes else "left free"
    for name, owner in found.unsupported.items():
        if name in found.parameters and name not in state.frozen:
            how = "frozen" if name in state.held else free
            yield _line(name, owner, found.parameters[name].numel(), how)


def _block_line(state: State, block: Block, rule: Rule | None) -> LayerReport:
    spectrum, own = state.spectra.get(block.name), state.rule_of(block.name) or rule
    tokens = block.layout == "tokens"
    if spectrum is None:
        size = block.width * block.groups
        line = _line(block.name, block.kind, size, "free until remembered")
        return replace(line, tokens=tokens)
    return LayerReport(
        name=block.name,
        kind=block.kind,
        features=spectrum.features,
        free=directions(spectrum.free, soft=own is not None and own.soft and not tokens),
        share=spectrum.share,
        condition=spectrum.condition,
        tokens=tokens,
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
