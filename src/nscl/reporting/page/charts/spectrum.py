"""Spectra of layers: R and free directions as heat maps, singular values of one layer."""

from collections.abc import Iterator
from typing import Any

import altair as alt

from nscl.reporting.errors import NoFigureDataError
from nscl.reporting.page.charts.maps import LONG_NUMBER, Look, heat_map, heat_maps
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
from nscl.reporting.plot_data.cells import decades
from nscl.reporting.plot_data.spectral import (
    FREE,
    LayerSpectrum,
    evenly,
    layer_names,
    short_names,
    spectra,
    spectral_table,
)
from nscl.reporting.series import Section, Series

# 50 runs must fit into 5 MB; a curve on a screen needs no more points than this.
MOST_POINTS, MOST_LAYERS, MOST_TASKS = 100, 8, 3
SMALLEST = 1e-10  # of the largest value: what is below stands at the bottom of the axis


def layer_cards(section: Section) -> Iterator[Card]:
    """R and the share of free directions, per layer and task."""
    found = [(series, tasks) for series in section.shown if (tasks := _spectra_of(series))]
    if not found:
        return
    shares = [v for _, tasks in found for row in spectral_table(tasks, "share") for v in row if v]
    for key, title, domain, log in (
        ("share", "R: energy of old inputs in freed directions, per layer and task",
         decades(shares), True),
        ("free", "Free directions, share of each layer", (0.0, 1.0), False),
    ):  # fmt: skip
        maps = [
            heat_map(
                series.marked, spectral_table(tasks, key), short_names(layer_names(tasks)),
                [str(task + 1) for task in tasks], digits=2,
            )
            for series, tasks in found
        ]  # fmt: skip
        columns = sorted({int(task) for each in maps for task in each["column"]})
        wide = len(columns) <= 12
        look = Look(
            domain=domain,
            log=log,
            cell=44 if wide else 16,
            height=22,
            x=("after task", [str(task) for task in columns]),
            y=(None, list(dict.fromkeys(name for each in maps for name in each["row"]))),
            value="format(datum.value, '.3~g')",
            name="R" if log else "free",
            ends=tuple(f"{value:.1e}" if log else f"{value:g}" for value in domain),
            numbers=LONG_NUMBER if wide else None,
        )
        yield Card(key, title, heat_maps(maps, look), wide=True)


def _spectra_of(series: Series) -> dict[int, Any] | None:
    try:
        return spectra(series)[1]
    except NoFigureDataError:
        return None


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
