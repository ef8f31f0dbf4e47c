"""How layers are protected: one by one, added up, and grouped by the pattern of their names."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nscl.core.report.names import common, pattern_of

# How a block can be held, as reported: by a hard or soft projection, or by a proximal rule.
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
    tokens: bool = False  # an embedding: its features are tokens, not directions of an input

    @property
    def is_held(self) -> bool:
        """Whether a projection or a proximal rule holds it."""
        return self.protected_by in HELD

    @property
    def free_share(self) -> float:
        """The free part of all it can move in: of its dimensions where they are known."""
        if self.dimensions is not None and self.free_dimensions is not None:
            return self.free_dimensions / self.dimensions if self.dimensions else 1.0
        return self.free / self.features if self.features else 1.0


@dataclass(frozen=True)
class LayerGroup:
    """Layers of one kind, held in one way, whose names differ only in numbers."""

    pattern: str
    layers: tuple[LayerReport, ...]

    @property
    def sum(self) -> LayerReport:
        """All of them as if they were one."""
        return sum_of(self.name, self.layers[0].kind, self.layers)

    @property
    def name(self) -> str:
        """The pattern, or the name of the only one."""
        return self.pattern if len(self.layers) > 1 else self.layers[0].name

    @property
    def least(self) -> LayerReport:
        """The least free of them."""
        return min(self.layers, key=lambda layer: layer.free_share)


def group_layers(layers: Iterable[LayerReport]) -> tuple[LayerGroup, ...]:
    """By pattern, the least free first; what no projection holds comes last."""
    found: dict[tuple[str, str, str], list[LayerReport]] = {}
    for layer in layers:
        key = (pattern_of(layer.name), layer.kind, layer.protected_by)
        found.setdefault(key, []).append(layer)
    groups = [LayerGroup(pattern, tuple(those)) for (pattern, *_), those in found.items()]
    return tuple(sorted(groups, key=_worst_first))


def _worst_first(group: LayerGroup) -> tuple[bool, float]:
    held = group.least.is_held
    return not held, group.least.free_share if held else 0.0  # the others in the model's order


def sum_of(name: str, kind: str, layers: Sequence[LayerReport]) -> LayerReport:
    """Layers as if they were one; R weighs every layer alike."""
    weighed = [layer for layer in layers if layer.dimensions is not None]
    free = sum(layer.free_dimensions or 0.0 for layer in weighed)
    return LayerReport(
        name=name,
        kind=kind,
        features=sum(layer.features for layer in layers),
        free=_whole(sum(layer.free for layer in layers)),
        share=sum(layer.share for layer in layers) / len(layers) if layers else 0.0,
        condition=max((layer.condition for layer in layers), default=1.0),
        protected_by=common([layer.protected_by for layer in layers]) or "nothing yet",
        dimensions=sum(layer.dimensions or 0 for layer in weighed) if weighed else None,
        free_dimensions=free if weighed else None,
        tokens=bool(layers) and all(layer.tokens for layer in layers),
    )


def directions(free: float, *, soft: bool) -> float:
    """Free directions as shown: a count for hard rules, an effective number for soft ones."""
    return free if soft else _whole(free)


def _whole(value: float) -> float:
    return round(value) if math.isclose(value, round(value), abs_tol=1e-9) else value
