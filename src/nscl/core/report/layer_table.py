"""The table of a report: a line per layer, or a line per pattern where there are many."""

from collections.abc import Sequence

from nscl.core.report.layers import LayerReport, group_layers
from nscl.core.report.names import MANY
from nscl.core.report.tables import table

_HEAD = ("features", "free", "%", "R", "condition")


def layer_table(layers: Sequence[LayerReport], totals: Sequence[LayerReport]) -> list[str]:
    """Layers in the model's order and their totals; beyond ``MANY`` by pattern, worst first."""
    has_dimensions = any(total.dimensions is not None for total in totals)
    last = ("dimensions", "free dim.") if has_dimensions else ()
    if len(layers) <= MANY:
        rows = [_row(layer, dimensions=has_dimensions) for layer in (*layers, *totals)]
        return table(("layer", "kind", "protected by", *_HEAD, *last), rows)
    rows = [
        _grouped(group.sum, len(group.layers), _percent(group.least.free_share), has_dimensions)
        for group in group_layers(layers)
    ]
    rows += [_grouped(total, None, "", has_dimensions) for total in totals]
    head = ("layers", "kind", "protected by", "number", "least free %", *_HEAD, *last)
    return table(head, rows)


def _grouped(
    layer: LayerReport, number: int | None, least: str, dimensions: bool
) -> tuple[str, ...]:
    name, kind, how, *numbers = _row(layer, dimensions=dimensions)
    return (name, kind, how, "" if number is None else str(number), least, *numbers)


def _row(layer: LayerReport, *, dimensions: bool) -> tuple[str, ...]:
    free = f"{layer.free}" if isinstance(layer.free, int) else f"{layer.free:.1f}"
    share = _percent(layer.free / layer.features) if layer.features else ""
    row = (
        layer.name, layer.kind, layer.protected_by, str(layer.features), free, share,
        f"{layer.share:.3g}", f"{layer.condition:.3g}",
    )  # fmt: skip
    return (*row, *_dimensions(layer)) if dimensions else row


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _dimensions(layer: LayerReport) -> tuple[str, str]:
    if layer.dimensions is None or layer.free_dimensions is None:
        return "", ""
    return str(layer.dimensions), f"{layer.free_dimensions:.1f}"
