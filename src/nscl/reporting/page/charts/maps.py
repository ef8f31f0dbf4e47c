"""Heat maps, one per series; those of accuracy on each task after each task.

The page's script chooses how wide a cell is and how many maps stand side by side, from the width
of the screen and the sizes in ``usermeta``.
"""

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from nscl.reporting.page.charts.theme import (
    ROWS,
    Card,
    chart_of_rows,
    hidden_series,
    significant,
    specification,
    visible,
)
from nscl.reporting.plot_data.cells import LIGHT, cell_text, clipped
from nscl.reporting.plot_data.curves import mean_matrix
from nscl.reporting.series import Section

DIGITS = 7  # significant digits of a cell's value
# Pixels from which a cell has room for its number: "62" or "100", "0.13" or "4e-5".
SHORT_NUMBER, LONG_NUMBER = 21, 30
MOST_NUMBERED = 12  # tasks up to which cells have numbers; beyond, the pointer shows them
LETTER = 6.6  # pixels, about


def matrix_card(section: Section) -> Iterator[Card]:
    """Accuracy on each task after each task, mean over seeds."""
    if not section.shown:
        return
    found = [accuracy_map(series.marked, mean_matrix(series)) for series in section.shown]
    title = "Accuracy on each task after each task (%)"
    yield Card("matrix", title, accuracy_maps(found, section), wide=True)


def accuracy_map(label: str, rows: Sequence[Sequence[float]]) -> dict[str, Any]:
    """One accuracy matrix as a row of data."""
    names = [str(task + 1) for task in range(len(rows))]
    return heat_map(label, rows, names, names, digits=0)


def accuracy_maps(maps: list[dict[str, Any]], section: Section) -> dict[str, Any]:
    """Accuracy matrices on the section's own scale of colours."""
    tasks = section.tasks
    cell = 34 if tasks <= 8 else 24 if tasks <= MOST_NUMBERED else 13
    names = [str(task + 1) for task in range(tasks)]
    span = clipped(value for s in section.shown for row in mean_matrix(s) for value in row)
    look = Look(
        domain=(span.low, span.high),
        ends=span.ends,
        cell=cell,
        height=round(cell * 0.8),
        x=("accuracy on task", names),
        y=("after task", names),
        value="format(datum.value, '.2f') + ' %'",
        name="accuracy",
        numbers=SHORT_NUMBER if tasks <= MOST_NUMBERED else None,
    )
    return heat_maps(maps, look)


def heat_map(
    label: str,
    values: Sequence[Sequence[float | None]],
    row_names: Sequence[str],
    column_names: Sequence[str],
    *,
    digits: int,
) -> dict[str, Any]:
    """One series as a row of data: parallel lists of its cells."""
    cells = [
        (row_names[i], column_names[j], value)
        for i, row in enumerate(values)
        for j, value in enumerate(row)
        if value is not None
    ]
    return {
        "series": label,
        "row": [row for row, _, _ in cells],
        "column": [column for _, column, _ in cells],
        "value": [significant(value, DIGITS) for _, _, value in cells],
        "text": [cell_text(value, digits) for _, _, value in cells],
    }


@dataclass(frozen=True)
class Look:
    """What all maps of a card have in common."""

    domain: tuple[float, float]
    cell: int  # pixels
    height: int  # of a cell, pixels
    x: tuple[str, Sequence[str]]  # title and names
    y: tuple[str | None, Sequence[str]]
    value: str  # expression of a cell's value as text
    name: str  # what a cell shows
    ends: tuple[str, ...]  # of the legend, as texts
    numbers: int | None  # pixels from which a cell has its number in it; None without numbers
    log: bool = False

    @property
    def beside(self) -> int:
        """Pixels for the names of the rows."""
        return 30 + round(LETTER * max(map(len, self.y[1])))

    @property
    def width(self) -> int:
        """Pixels of all cells of a row."""
        return self.cell * len(self.x[1])


def heat_maps(maps: list[dict[str, Any]], look: Look) -> dict[str, Any]:
    """The specification of all maps of a card."""
    titles = _titles([each["series"] for each in maps], (look.beside + look.width) / LETTER)
    for each, title in zip(maps, titles, strict=True):
        each["title"] = title
        if not look.numbers:
            del each["text"]
    maps_of_series = alt.FacetChart(
        data=ROWS,
        spec=alt.layer(*_layers(look), width=look.width, height=alt.Step(look.height)),
        facet=alt.Facet("title:N", sort=titles, title=None, header=alt.Header(labelPadding=4)),
        columns=1,
        transform=_cells(look),
        resolve=alt.Resolve(axis=alt.AxisResolveMap(x="independent", y="independent")),
    )
    params = [hidden_series(), alt.param(name="cell", value=look.cell)]
    spec = specification(maps_of_series, maps, params)
    del spec["spec"]["data"]  # each map has its part of the rows, not all of them
    sizes = {"cell": look.cell, "columns": len(look.x[1]), "beside": look.beside}
    return {**spec, "usermeta": sizes}


def _layers(look: Look) -> list[alt.Chart]:
    """Coloured squares, and numbers in them where these are wanted."""
    (x_title, columns), (y_title, rows) = look.x, look.y
    cells = chart_of_rows().encode(
        x=alt.X("column:O", title=x_title, sort=list(columns), axis=_labels()),
        y=alt.Y("row:O", title=y_title, sort=list(rows), axis=_labels()),
    )
    legend = _bar(look.domain, look.ends)
    squares = cells.mark_rect(stroke="var(--ground)", strokeWidth=1).encode(
        color=alt.Color("shade:Q", scale=_shades(look.domain, log=look.log), legend=legend),
        tooltip=[
            alt.Tooltip("series:N", title="title"),
            alt.Tooltip("row:N", title=y_title or "layer"),
            alt.Tooltip("column:N", title=x_title),
            alt.Tooltip("shown:N", title=look.name),
        ],
    )
    return [squares, *([_numbers(cells, look)] if look.numbers else [])]


def _cells(look: Look) -> list[alt.Transform]:
    """From a row of data per map to a row per cell."""
    lists = ["row", "column", "value", *(["text"] if look.numbers else [])]
    return [
        alt.FilterTransform(visible()),
        alt.FlattenTransform(lists),
        _calculate("shade", f"max(datum.value, {look.domain[0]!r})"),
        _calculate("shown", look.value),
    ]


def _calculate(name: str, expression: str) -> alt.CalculateTransform:
    return alt.CalculateTransform(calculate=expression, **{"as": name})


def _labels() -> alt.Axis:
    return alt.Axis(ticks=False, domain=False, labelAngle=0, labelOverlap=True, labelLimit=0)


def _shades(domain: tuple[float, float], *, log: bool) -> alt.Scale:
    return alt.Scale(
        type="log" if log else "linear", scheme="cividis", domain=list(domain), clamp=True
    )


def _bar(domain: tuple[float, float], ends: Sequence[str]) -> alt.Legend:
    """A bar of all colours, with the values at its ends."""
    return alt.Legend(
        title=None, orient="top", direction="horizontal", gradientLength=140, values=list(domain),
        labelExpr=f"datum.value > {domain[0]!r} ? '{ends[1]}' : '{ends[0]}'",
    )  # fmt: skip


def _numbers(cells: alt.Chart, look: Look) -> alt.Chart:
    """Numbers in the cells, dark on light ones; none where the screen leaves them no room."""
    low, high = look.domain
    place = (
        f"log(datum.shade / {low!r}) / {math.log(high / low)!r}"
        if look.log
        else f"(datum.shade - {low!r}) / {high - low!r}"
    )
    chart: alt.Chart = cells.mark_text(
        fontSize=11, tooltip=None, opacity=alt.expr(f"cell >= {look.numbers} ? 1 : 0")
    ).encode(
        text=alt.Text("text:N"),
        color=alt.ColorValue("#fff", condition={"test": f"{place} > {LIGHT}", "value": "#000"}),
    )
    return chart


def _titles(labels: Sequence[str], characters: float) -> list[str]:
    """Labels in up to three lines; two that would become one text keep all of theirs."""
    width = max(20, int(characters))
    whole = ["\n".join(textwrap.wrap(label, width)) for label in labels]
    cut = ["\n".join(textwrap.wrap(label, width, max_lines=3, placeholder="…")) for label in labels]
    return [c if cut.count(c) == 1 else w for c, w in zip(cut, whole, strict=True)]
