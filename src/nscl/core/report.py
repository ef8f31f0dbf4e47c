"""What a memory tells about itself: data first, a readable table when printed."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

# How a block can be held, as told: by a hard or soft projection, or by a proximal rule.
HELD = ("null space", "both factors", "inputs")


@dataclass(frozen=True)
class LayerReport:
    """How one layer is protected."""

    name: str
    kind: str
    features: int
    free: float  # directions; a whole number unless the rule is soft
    share: float  # the paper's R
    condition: float
    protected_by: str
    # Of a rule on both factors: all out × features dimensions, and Σ 1/(1 + r) over them.
    dimensions: int | None = None
    free_dimensions: float | None = None


@dataclass(frozen=True)
class Shift:
    """How far a normalisation layer's running statistics have moved, in remembered deviations."""

    name: str
    shift: float


@dataclass(frozen=True)
class Report:
    """Per layer: protected how, features, free directions, R; and which optimizers are guarded."""

    layers: tuple[LayerReport, ...]
    statistics: tuple[Shift, ...]
    optimizers: tuple[str, ...]
    tasks: int
    nbytes: dict[str, int]
    remarks: tuple[str, ...] = ()  # on optimizers; they are among the notes

    @property
    def total(self) -> LayerReport:
        """All remembered layers as if they were one; R weighs every layer alike."""
        seen = [layer for layer in self.layers if layer.protected_by in HELD]
        weighed = [layer for layer in seen if layer.dimensions is not None]
        return LayerReport(
            name="total",
            kind=f"{len(seen)} layers",
            features=sum(layer.features for layer in seen),
            free=_whole(sum(layer.free for layer in seen)),
            share=sum(layer.share for layer in seen) / len(seen) if seen else 0.0,
            condition=max((layer.condition for layer in seen), default=1.0),
            protected_by=_common([layer.protected_by for layer in seen]) or "nothing yet",
            dimensions=sum(layer.dimensions or 0 for layer in weighed) if weighed else None,
            free_dimensions=sum(layer.free_dimensions or 0.0 for layer in weighed)
            if weighed
            else None,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What deserves attention: layers that cannot learn, layers that are not held."""
        seen = [layer for layer in self.layers if layer.protected_by in HELD]
        none = [layer.name for layer in seen if layer.free < 0.5]
        full = [layer.name for layer in seen if layer.free >= layer.features]
        notes = []
        if none:
            notes.append(
                f"0 % free: {listed(none)}: the old data use every direction, so these weights "
                "cannot move at all; a larger `a` (or share, or alpha) frees some"
            )
        if full:
            notes.append(
                f"100 % free: {listed(full)}: nothing is held here; either the old data never "
                "reach these layers' inputs, or the rule is too generous for their spectrum"
            )
        if self.tasks and not self.optimizers:
            notes.append("no optimizer is protected: training now would forget")
        return (*notes, *self.remarks)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        written = {name: value for name, value in asdict(self).items() if name != "remarks"}
        return {**written, "total": asdict(self.total), "notes": list(self.notes)}

    def __str__(self) -> str:
        head: tuple[str, ...] = (
            "layer", "kind", "protected by", "features", "free", "%", "R", "condition",
        )  # fmt: skip
        lines_of = (*self.layers, self.total)
        rows = [_report_row(layer) for layer in lines_of]
        if self.total.dimensions is not None:
            head = (*head, "dimensions", "free dim.")
            rows = [(*row, *_dimensions(layer)) for row, layer in zip(rows, lines_of, strict=True)]
        guarded = ", ".join(self.optimizers) or "no optimizer"
        lines = [f"nscl memory of {self.tasks} task(s), protecting {guarded}"]
        lines += _table(head, rows)
        lines += [f"statistics of {s.name} moved by {s.shift:.3g} σ" for s in _largest(self)]
        return "\n".join((*lines, *self.notes))


@dataclass(frozen=True)
class LayerForgetting:
    """How far one layer's outputs on all remembered data have moved."""

    name: str
    drift: float  # mean over remembered rows of ‖Δoutput‖²
    relative: float  # the same over the mean ‖output‖²
    # Weighed by the loss's gradients, where they were remembered (factors="kronecker"):
    # Predicted rise of the old loss per sample, ½ tr(G ΔW C ΔWᵀ). With drawn labels that loss is
    # the divergence from the old answers, softened by remember's temperature.
    loss: float | None = None
    weighed: float | None = None  # relative as above; what Budget keeps at or below its drift


@dataclass(frozen=True)
class Forgetting:
    """Movement since the last ``remember``, measured exactly without the old data."""

    layers: tuple[LayerForgetting, ...]
    statistics: tuple[Shift, ...]
    total: LayerForgetting

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        head: tuple[str, ...] = ("layer", "drift", "relative")
        rows: list[tuple[str, ...]] = [
            (layer.name, f"{layer.drift:.3g}", f"{layer.relative:.3g}")
            for layer in (*self.layers, self.total)
        ]
        if self.total.loss is not None:
            head = (*head, "weighed", "loss")
            both = zip(rows, (*self.layers, self.total), strict=True)
            rows = [(*row, _number(layer.weighed), _number(layer.loss)) for row, layer in both]
        lines = _table(head, rows, text=1)
        lines += [f"statistics of {s.name} moved by {s.shift:.3g} σ" for s in _largest(self)]
        return "\n".join(lines)


def directions(free: float, *, soft: bool) -> float:
    """Free directions as shown: a count for hard rules, an effective number for soft ones."""
    return free if soft else _whole(free)


def _whole(value: float) -> float:
    return round(value) if math.isclose(value, round(value), abs_tol=1e-9) else value


def _largest(report: Report | Forgetting) -> list[Shift]:
    moved = [s for s in report.statistics if s.shift > 0]
    return sorted(moved, key=lambda s: -s.shift)[:3]


def listed(names: Sequence[str]) -> str:
    """Some names in words, however many there are."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _report_row(layer: LayerReport) -> tuple[str, ...]:
    free = f"{layer.free}" if isinstance(layer.free, int) else f"{layer.free:.1f}"
    percent = f"{100 * layer.free / layer.features:.1f}" if layer.features else ""
    return (
        layer.name, layer.kind, layer.protected_by, str(layer.features), free, percent,
        f"{layer.share:.3g}", f"{layer.condition:.3g}",
    )  # fmt: skip


def _common(words: Sequence[str]) -> str:
    """All of them in one, each once."""
    return ", ".join(dict.fromkeys(words))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _dimensions(layer: LayerReport) -> tuple[str, str]:
    if layer.dimensions is None or layer.free_dimensions is None:
        return "", ""
    return str(layer.dimensions), f"{layer.free_dimensions:.1f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, text: int = 3) -> list[str]:
    """So many columns of text to the left, columns of numbers to the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        cells = [
            cell.ljust(width) if i < text else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    return [line(head), "  ".join("─" * width for width in widths), *(line(row) for row in rows)]
