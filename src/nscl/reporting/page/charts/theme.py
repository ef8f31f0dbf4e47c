"""What all charts of the page share: colours, markers, dashes, the card, Vega's configuration."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from nscl.metrics import Summary
from nscl.reporting.plot_styles import DASHES, PlotStyle, section_styles
from nscl.reporting.series import Section

HEIGHT = 230
ROWS = alt.Data(name="rows")
LINE = 1.8  # width in pixels; dashes are multiples of it
# SVG paths in a square from -1 to 1: Vega scales them. The same order as in the paper figures.
SHAPES = (
    "M-0.8,0a0.8,0.8 0 1,0 1.6,0a0.8,0.8 0 1,0 -1.6,0Z",
    "M-0.75,-0.75H0.75V0.75H-0.75Z",
    "M0,-1L0.92,0.7H-0.92Z",
    "M0,-1L1,0L0,1L-1,0Z",
    "M0,1L0.92,-0.7H-0.92Z",
    "M-0.33,-1H0.33V-0.33H1V0.33H0.33V1H-0.33V0.33H-1V-0.33H-0.33Z",
    "M-1,0L0.7,-0.92V0.92Z",
    "M1,0L-0.7,-0.92V0.92Z",
    "M-0.5,-0.9H0.5L1,0L0.5,0.9H-0.5L-1,0Z",
    "M-0.9,-0.5L-0.5,-0.9L0,-0.4L0.5,-0.9L0.9,-0.5L0.4,0L0.9,0.5L0.5,0.9L0,0.4L-0.5,0.9"
    "L-0.9,0.5L-0.4,0Z",
    "M0,-1.1L0.31,-0.36L1.1,-0.34L0.48,0.17L0.68,0.93L0,0.5L-0.68,0.93L-0.48,0.17"
    "L-1.1,-0.34L-0.31,-0.36Z",
)

#: Colours are CSS variables of the page, so that charts follow its light and dark theme.
CONFIG: dict[str, Any] = {
    "background": "transparent",
    # The page's own: Vega measures texts to place them, and cannot inherit a font.
    "font": ("system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, DejaVu Sans, sans-serif"),
    "lineBreak": "\n",
    "view": {"stroke": None},
    "axis": {
        "domainColor": "var(--quiet)",
        "gridColor": "var(--faint)",
        "labelColor": "var(--quiet)",
        "labelFontSize": 12,
        "tickColor": "var(--quiet)",
        "titleColor": "var(--ink)",
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    },
    "axisX": {"grid": False},
    "header": {
        "labelColor": "var(--ink)",
        "labelFontSize": 13,
        "labelAnchor": "start",
        "labelLimit": 0,
        "title": None,
    },
    "legend": {
        "labelColor": "var(--quiet)",
        "labelFontSize": 12,
        "titleColor": "var(--quiet)",
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    },
}


@dataclass(frozen=True)
class Card:
    """One chart on the page: ``key`` names it in the document, ``wide`` takes a full row."""

    key: str
    title: str
    spec: dict[str, Any]
    wide: bool = False


@dataclass(frozen=True)
class Styles:
    """How each line of a chart looks, by its label."""

    labels: list[str]
    styles: list[PlotStyle]
    open: list[bool]  # open markers: methods that keep old data

    @property
    def colour(self) -> alt.Color:
        """Colour by series."""
        return alt.Color("series:N", legend=None, scale=self._scale(self._colours()))

    @property
    def dash(self) -> alt.StrokeDash:
        """Dash by series; ``[1, 0]`` is a solid line."""
        dashes = [dash_pixels(style) or [1, 0] for style in self.styles]
        return alt.StrokeDash("series:N", legend=None, scale=self._scale(dashes))

    @property
    def shape(self) -> alt.Shape:
        """Marker by series."""
        shapes = [SHAPES[style.marker] for style in self.styles]
        return alt.Shape("series:N", legend=None, scale=self._scale(shapes))

    @property
    def fill(self) -> alt.Fill:
        """Fill of markers by series: the page's ground in open ones."""
        pairs = zip(self._colours(), self.open, strict=True)
        fills = ["var(--ground)" if hollow else colour for colour, hollow in pairs]
        return alt.Fill("series:N", legend=None, scale=self._scale(fills))

    def _colours(self) -> list[str]:
        return [f"var(--c{style.colour})" for style in self.styles]

    def _scale(self, values: Sequence[Any]) -> alt.Scale:
        return alt.Scale(domain=self.labels, range=list(values))


def styles_of(section: Section) -> Styles:
    """The styles of a section's series, the same in all of its charts."""
    keeps = [series.stores == "data" for series in section.shown]
    return Styles([s.marked for s in section.shown], section_styles(section), keeps)


def dash_pixels(style: PlotStyle) -> list[float]:
    """The dash in pixels of the page's lines; empty for a solid line."""
    return [round(part * LINE, 1) for part in DASHES[style.dash]]


def hidden_series() -> alt.Parameter:
    """Labels that the reader has switched off; the page's script sets them."""
    return alt.param(name="hidden", value=[])


def visible() -> str:
    """Vega expression: this row's series is switched on."""
    return "indexof(hidden, datum.series) < 0"


def choice(options: Sequence[str]) -> alt.Parameter:
    """A menu of which the chart shows one option at a time."""
    menu = alt.binding_select(options=list(options), name=" ")
    return alt.param(name="choice", value=options[0], bind=menu)


def specification(
    chart: alt.LayerChart | alt.FacetChart,
    data: Sequence[dict[str, Any]],
    params: Sequence[alt.Parameter],
) -> dict[str, Any]:
    """The chart as Vega-Lite, with its data and parameters.

    Both are added last: Altair would copy them at each step. Validation takes a second per page,
    so only the tests do it.
    """
    spec = chart.to_dict(validate=False)
    del spec["$schema"], spec["config"]  # the address is not needed; CONFIG is for all charts
    own = [_definition(each) for each in params]
    spec["params"] = [*own, *spec.get("params", [])]
    return {**spec, "datasets": {**spec.get("datasets", {}), "rows": list(data)}}


def _definition(parameter: alt.Parameter) -> dict[str, Any]:
    definition: Any = parameter.param
    found: dict[str, Any] = definition.to_dict(validate=False)
    return found


def nearest_x() -> alt.Parameter:
    """The x that is nearest to the pointer."""
    return alt.selection_point(
        name="hover", fields=["x"], nearest=True, on="pointerover", clear="pointerout", empty=False
    )


def while_near(nearest: alt.Parameter) -> alt.OpacityValue:
    """Visible at the nearest x only."""
    near = {"param": nearest.name, "empty": False, "value": 1}
    return alt.OpacityValue(0, condition=near)


def with_field(channel: Any, field: str) -> Any:
    """The same axis for another field."""
    other = channel.copy()
    other["shorthand"] = f"{field}:Q"
    return other


def chart_of_rows() -> alt.Chart:
    """A chart of the data that ``specification`` adds."""
    return alt.Chart(ROWS)


def means(points: Iterable[Summary], digits: int = 2) -> dict[str, list[float | None]]:
    """Means and deviations as parallel lists, rounded: the page must stay small."""
    points = list(points)
    return {
        "mean": [round(p.mean, digits) for p in points],
        "std": [None if p.std is None else round(p.std, digits) for p in points],
    }


def significant(value: float | None, digits: int = 3) -> float | None:
    """Round to this many significant digits."""
    return None if value is None else float(f"{value:.{digits}g}")
