"""Line charts: one line per series with a band of one deviation, and all values at the pointer."""

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from nscl.reporting.page.charts.theme import (
    HEIGHT,
    LINE,
    Styles,
    chart_of_rows,
    hidden_series,
    nearest_x,
    specification,
    styles_of,
    visible,
    while_near,
    with_field,
)
from nscl.reporting.series import Section

MOST_MARKERS = 12  # on one line
LIMIT = 1e300  # Vega expressions have no infinity


def line(label: str, x: Sequence[float], values: dict[str, list[float | None]]) -> dict[str, Any]:
    """One line as a row of data: lists for its points, and where its markers are."""
    every = -(-len(x) // MOST_MARKERS) or 1
    return {"series": label, "x": list(x), **values, "marked": list(x)[::every]}


def line_chart(
    lines: Sequence[dict[str, Any]],
    styles: Styles,
    *,
    x: alt.X,
    y: alt.Y,
    text: str,
    heading: str,
    within: tuple[float, float] = (-LIMIT, LIMIT),
    params: Sequence[alt.Parameter] = (),
    only: str = "true",
) -> dict[str, Any]:
    """The specification of a line chart.

    ``text`` and ``heading`` are Vega expressions: how a point's value and an x are written at the
    pointer. Bands end at the limits ``within``. ``only`` filters lines by a reader's choice.
    """
    points = (
        chart_of_rows()
        .transform_filter(f"{visible()} && ({only})")
        .transform_flatten(["x", "mean", "std"])
        .transform_calculate(text=text)
    )
    layers = alt.layer(
        _bands(points, x, y, styles, within),
        points.mark_line(strokeWidth=LINE, strokeJoin="round", clip=False).encode(
            x=x, y=y, color=styles.colour, strokeDash=styles.dash,
            description=alt.Description("series:N"),
        ),
        points.transform_filter("indexof(datum.marked, datum.x) >= 0")
        .mark_point(size=50, strokeWidth=1.4, opacity=1)
        .encode(
            x=x, y=y, color=styles.colour, fill=styles.fill, shape=styles.shape,
        ),
        _pointer(points, x, heading),
        nothing_shown(len(styles.labels)),
        width="container",
        height=HEIGHT,
    )  # fmt: skip
    return specification(layers, lines, [hidden_series(), *params])


def of_series(section: Section, lines: Sequence[dict[str, Any]], **how: Any) -> dict[str, Any]:
    """Curves of a section's series; of many, the page shows a few until the reader wants more."""
    spec = line_chart(lines, styles_of(section), **how)
    return {**spec, "usermeta": {"curves": True}}


def nothing_shown(count: int) -> alt.Chart:
    """A line of text where the reader has switched off all series."""
    chart: alt.Chart = (
        alt.Chart(alt.Data(values=[{}]))
        .transform_filter(f"length(hidden) >= {count}")
        .mark_text(fontSize=13, color="var(--quiet)", text="all methods are switched off")
        .encode(x=alt.XValue(alt.expr("width / 2")), y=alt.YValue(HEIGHT / 2))
    )
    return chart


def _bands(
    points: alt.Chart, x: alt.X, y: alt.Y, styles: Styles, within: tuple[float, float]
) -> alt.Chart:
    low = f"max({within[0]}, datum.mean - datum.std)"
    high = f"min({within[1]}, datum.mean + datum.std)"
    chart: alt.Chart = (
        points.transform_filter("datum.std != null")
        .transform_calculate(low=low, high=high)
        .mark_area(opacity=0.1, tooltip=None)
        .encode(x=x, y=with_field(y, "low"), y2=alt.Y2("high:Q"), color=styles.colour)
    )
    return chart


def _pointer(points: alt.Chart, x: alt.X, heading: str) -> alt.Chart:
    """A rule at the x nearest to the pointer; its tooltip lists all lines there."""
    nearest = nearest_x()
    every = alt.AggregatedFieldDef(op="values", **{"as": "lines"})
    chart: alt.Chart = (
        points.transform_aggregate([every], groupby=["x"])
        .transform_calculate(title=heading)
        .mark_rule(strokeDash=[2, 3], color="var(--quiet)", tooltip=alt.TooltipContent("data"))
        .encode(x=x, opacity=while_near(nearest))
        .add_params(nearest)
    )
    return chart


def value_text(unit: str) -> str:
    """Vega expression: mean, deviation if there is one, and unit."""
    deviation = "(datum.std == null ? '' : ' ± ' + format(datum.std, '.2f'))"
    return f"format(datum.mean, '.2f') + {deviation} + '{unit}'"


def value_axis(label: str, *, zero: bool = False, log: bool = False) -> alt.Y:
    """The axis of means."""
    scale = alt.Scale(type="log", nice=False, padding=8) if log else alt.Scale(zero=zero)
    axis = alt.Axis(format="~g", tickCount=5) if log else alt.Axis(tickCount=5)
    return alt.Y("mean:Q", title=label, scale=scale, axis=axis)


def task_axis(tasks: int, label: str) -> alt.X:
    """Tasks from 1, at most a dozen of them numbered."""
    step = math.ceil(tasks / 12)
    domain = [0.8 if tasks > 1 else 0.5, tasks + 0.2]
    return alt.X(
        "x:Q",
        title=label,
        scale=alt.Scale(domain=domain, nice=False, zero=False),
        axis=alt.Axis(values=list(range(1, tasks + 1, step)), format="d"),
    )


def open_task_axis(tasks: int) -> alt.X:
    """Tasks as stretches of the axis, numbered in their middle."""
    step = math.ceil(tasks / 12)
    return alt.X(
        "x:Q",
        title="task being learned",
        scale=alt.Scale(domain=[0, tasks], nice=False),
        axis=alt.Axis(
            values=[t + 0.5 for t in range(0, tasks, step)],
            labelExpr="format(datum.value + 0.5, 'd')",
            ticks=False,
        ),
    )
