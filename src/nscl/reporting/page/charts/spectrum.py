"""Singular values of one layer after one task, with the freed directions coloured."""

from collections.abc import Iterator
from typing import Any

import altair as alt

from nscl.reporting.errors import NoFigureDataError
from nscl.reporting.page.charts.theme import (
    HEIGHT,
    LINE,
    Card,
    chart_of_rows,
    choice,
    nearest_x,
    significant,
    specification,
    while_near,
    with_field,
)
from nscl.reporting.plot_data.spectral import (
    FREE,
    LayerSpectrum,
    evenly,
    layer_names,
    short_names,
    spectra,
)
from nscl.reporting.series import Section, Series

# 50 runs must fit into 5 MB; a curve on a screen needs no more points than this.
MOST_POINTS, MOST_LAYERS, MOST_TASKS = 100, 8, 3
SMALLEST = 1e-10  # of the largest value: what is below stands at the bottom of the axis


def spectrum_card(section: Section) -> Iterator[Card]:
    """A menu of layers and tasks; the chart shows one of them."""
    curves = [row for series in section.shown for row in _rows(series)]
    if not curves:
        return
    points = (
        chart_of_rows()
        .transform_filter("datum.curve == choice")
        .transform_flatten(["x", "value", "weight"])
        .transform_calculate(
            height=f"max(datum.value, datum.most * {SMALLEST})",
            left="max(1, datum.x - datum.step / 2)",
            right="min(datum.size, datum.x + datum.step / 2)",
        )
    )
    x = alt.X("x:Q", title="index", scale=alt.Scale(zero=False, nice=False))
    y = alt.Y(
        "height:Q", title="singular value",
        scale=alt.Scale(type="log", nice=False, padding=8), axis=alt.Axis(format="~e", tickCount=5),
    )  # fmt: skip
    freed = points.transform_filter(f"datum.weight > {FREE}")
    chart = alt.layer(
        freed.mark_rect(color="var(--c0)", opacity=0.25, tooltip=None).encode(
            x=with_field(x, "left"), x2=alt.X2("right:Q"), y=y, y2=alt.Y2Value("height")
        ),
        points.mark_line(color="var(--held)", strokeWidth=LINE).encode(x=x, y=y),
        points.transform_calculate(height=f"datum.weight > {FREE} ? datum.height : null")
        .mark_line(color="var(--c0)", strokeWidth=2.6)
        .encode(x=x, y=y, description=alt.Description("curve:N")),
        _pointer(points, x),
        points.transform_aggregate(groupby=["note"])
        .mark_text(align="right", baseline="top", color="var(--quiet)", fontSize=13)
        .encode(x=alt.XValue("width"), y=alt.YValue(2), text=alt.Text("note:N")),
        width="container",
        height=HEIGHT,
    )
    menu = choice([curve["curve"] for curve in curves])
    spec = specification(chart, curves, [menu])
    yield Card("spectrum", "Singular values; the freed part is coloured", spec, wide=True)


def _pointer(points: alt.Chart, x: alt.X) -> alt.Chart:
    nearest = nearest_x()
    chart: alt.Chart = (
        points.mark_rule(strokeDash=[2, 3], color="var(--quiet)")
        .encode(
            x=x,
            opacity=while_near(nearest),
            tooltip=[
                alt.Tooltip("x:Q", title="direction", format="d"),
                alt.Tooltip("value:Q", title="singular value", format=".3~g"),
                alt.Tooltip("weight:Q", title="free (1) or held (0)", format=".2f"),
            ],
        )
        .add_params(nearest)
    )
    return chart


def _rows(series: Series) -> Iterator[dict[str, Any]]:
    try:
        _, tasks = spectra(series)
    except NoFigureDataError:
        return
    names = layer_names(tasks)
    shown = short_names(names)
    kept = [[*tasks][i] for i in evenly(len(tasks), MOST_TASKS)]
    for i in evenly(len(names), MOST_LAYERS):
        for task in kept:
            if names[i] in tasks[task]:
                name = f"{series.marked}: {shown[i]}, after task {task + 1}"
                yield {"curve": name, **_points(tasks[task][names[i]])}


def _points(spectrum: LayerSpectrum) -> dict[str, Any]:
    """A curve as parallel lists; the bar of a point is as wide as the step to the next one."""
    size = len(spectrum.values)
    kept = evenly(size, MOST_POINTS)
    return {
        "note": f"R = {significant(spectrum.share):g}, {round(spectrum.free)} of {size} free",
        "most": significant(float(spectrum.values.max())) or 1.0,
        "size": size,
        "step": significant((size - 1) / max(1, len(kept) - 1)),
        "x": [i + 1 for i in kept],
        "value": [significant(float(spectrum.values[i])) for i in kept],
        "weight": [_short(float(spectrum.weights[i])) for i in kept],
    }


def _short(weight: float) -> float:
    """Two digits; most weights are 0 or 1, which take one character as integers."""
    return int(weight) if weight == int(weight) else round(weight, 2)
