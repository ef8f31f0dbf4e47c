"""Heat maps: the accuracy matrix of each series; R and free directions per layer and task."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from nscl.reporting.errors import NoFigureDataError
from nscl.reporting.figures.plans import MOST_NUMBERED, matrices_of_a_page
from nscl.reporting.figures.sheets import Sheet
from nscl.reporting.figures.style import COLUMN, PAGE, columns_for
from nscl.reporting.figures.texts import fitted, width
from nscl.reporting.plot_data.cells import LIGHT, Span, cell_text, clipped, decades
from nscl.reporting.plot_data.curves import mean_matrix
from nscl.reporting.plot_data.spectral import (
    Array,
    layer_names,
    short_names,
    spectra,
    spectral_table,
)
from nscl.reporting.series import Section, Series

MOST_WIDE_NUMBERS = 12  # tasks up to which cells of a layer's row have room for numbers
TALLEST = 9.4  # inches of a page
NUMBER, LINE = 7.0, 0.14  # points of a number in a cell; inches of a title's line
LEFT, GAP, SCALE = 0.45, 0.3, 0.85  # inches: beside the first map, between maps, for the scale
LEAST, WIDEST = 0.144, 0.34  # inches: a cell that "62" fits into, and one that needs no more


def accuracy_matrix(section: Section, page: int = 0) -> Figure:
    """A lower triangle per series, all on one scale, on as many pages as they need."""
    if not section.shown:
        raise NoFigureDataError("no task is finished")
    everything = [mean_matrix(series) for series in section.shown]
    size = max(map(len, everything))  # of all: cells of one size, tasks at one place
    most = matrices_of_a_page(size)
    part = slice(page * most, (page + 1) * most)
    span = clipped(v for rows in everything for row in rows for v in row)
    labels = [series.marked for series in section.shown[part]]
    return _Triangles(labels, everything[part], size, span).drawn()


class _Triangles:
    """A page of accuracy matrices: how large their cells are, and where each stands."""

    def __init__(
        self, labels: Sequence[str], matrices: Sequence[list[list[float]]], size: int, span: Span
    ) -> None:
        self.matrices, self.size, self.span = matrices, size, span
        self.columns = columns_for(len(labels))
        while self.columns > 1 and size <= MOST_NUMBERED and self._room() < LEAST:
            self.columns -= 1
        self.page = PAGE if self.columns > 1 else COLUMN
        self.pitch = (self.page - SCALE - LEFT + GAP) / self.columns
        self.titles = [fitted(label, self.pitch - 0.05) for label in labels]
        self.rows = math.ceil(len(labels) / self.columns)
        heads = [self._head(row) for row in range(self.rows)]
        self.cell = min(WIDEST, self._room())
        room = (TALLEST - 0.45 - sum(heads)) / (self.rows * size)
        self.height = min(self.cell, room)
        self.tops: list[float] = []  # of the cells of each row, from the top
        for head in heads:
            above = self.tops[-1] + self.height * size if self.tops else 0.0
            self.tops.append(above + head)

    def _room(self) -> float:
        page = PAGE if self.columns > 1 else COLUMN
        return (page - SCALE - LEFT - GAP * (self.columns - 1)) / (self.columns * self.size)

    def _head(self, row: int) -> float:
        """Inches above the cells of a row: the numbers of the row before, and titles."""
        titles = self.titles[row * self.columns : (row + 1) * self.columns]
        return LINE * (1 + max(title.count("\n") for title in titles)) + (0.32 if row else 0.1)

    def drawn(self) -> Figure:
        height = self.tops[-1] + self.height * self.size + 0.45
        sheet = Sheet(self.page, height)
        norm = Normalize(self.span.low, self.span.high, clip=True)
        for i, (title, rows) in enumerate(zip(self.titles, self.matrices, strict=True)):
            left = LEFT + self.pitch * (i % self.columns)
            top = height - self.tops[i // self.columns]
            grid = np.full((self.size, self.size), np.nan)
            for j, row in enumerate(rows):
                grid[j, : len(row)] = row
            _cells(sheet, grid, norm, left, top, self.cell, self.height)
            if self.size <= MOST_NUMBERED:
                _numbers(sheet, grid, norm, left, top, self.cell, self.height, digits=0)
            self._names(sheet, i, left, top)
            sheet.text(left, top + 0.05, title, va="bottom")
        bottom, top = 0.45, height - self.tops[0]
        middle, half = (bottom + top) / 2, min(top - bottom, 4.0) / 2
        sheet.scale(
            norm, _accuracy_ticks(self.span), "accuracy (%)",
            x=self.page - SCALE + 0.15, bottom=middle - half, top=middle + half,
        )  # fmt: skip
        return sheet.finished()

    def _names(self, sheet: Sheet, i: int, left: float, top: float) -> None:
        """Numbers of the tasks beside and under the cells, and what they are at the margins."""
        bottom = top - self.height * self.size
        for place in range(0, self.size, math.ceil(0.14 / self.cell)):
            x = left + (place + 0.5) * self.cell
            sheet.stamp(str(place + 1), x, bottom - 0.09, size=7.0)
        for place in range(0, self.size, math.ceil(0.12 / self.height)):
            y = top - (place + 0.5) * self.height
            sheet.stamp(str(place + 1), left - 0.04, y, size=7.0, align="right")
        if i + self.columns >= len(self.titles):
            sheet.text(left, bottom - 0.17, "accuracy on task", va="top")
        if i % self.columns == 0:
            sheet.text(
                left - 0.2, (top + bottom) / 2, "after task", rotation=90, ha="right", va="center"
            )


def _accuracy_ticks(span: Span) -> list[tuple[float, str]]:
    """Round numbers inside, and the ends of the scale, which say that it is clipped."""
    step = next((s for s in (1, 2, 5, 10, 20) if (span.high - span.low) / s <= 8), 25)
    first = math.ceil(span.low / step) * step
    inside = range(first, int(span.high) + 1, step)
    room = 0.6 * step
    kept = [(float(v), str(v)) for v in inside if span.low + room < v < span.high - room]
    return [(span.low, span.ends[0]), *kept, (span.high, span.ends[1])]


def layer_map(series: Series, what: str) -> Figure:
    """``share`` (R) or ``free`` per layer and task of one series."""
    _, tasks = spectra(series)
    names = short_names(layer_names(tasks))
    table = spectral_table(tasks, what)
    values = np.array([[np.nan if v is None else v for v in row] for row in table])
    numbered = len(tasks) <= MOST_WIDE_NUMBERS
    cell, height = (0.38 if numbered else 4.6 / len(tasks)), min(0.26, 8.0 / len(names))
    left = 0.15 + max(width(name, 7.5) for name in names)
    wide = max(COLUMN, left + cell * len(tasks) + 1.15)
    title = fitted(series.marked, wide - 0.3)
    head = 0.15 + LINE * (1 + title.count("\n"))
    sheet = Sheet(wide, head + height * len(names) + 0.5)
    top, bottom = sheet.height - head, 0.5
    norm = (
        LogNorm(*decades(values[np.isfinite(values)].tolist()), clip=True)
        if what == "share"
        else Normalize(0.0, 1.0)
    )
    _cells(sheet, values, norm, left, top, cell, height)
    if numbered:
        _numbers(sheet, values, norm, left, top, cell, height, digits=2)
    for i, name in enumerate(names):
        sheet.stamp(name, left - 0.05, top - (i + 0.5) * height, size=7.5, align="right")
    for i in range(0, len(tasks), math.ceil(len(tasks) / 12)):
        sheet.stamp(str([*tasks][i] + 1), left + (i + 0.5) * cell, bottom - 0.1, size=7.5)
    sheet.text(left + cell * len(tasks) / 2, bottom - 0.2, "after task", ha="center", va="top")
    sheet.text(0.1, sheet.height - 0.06, title, va="top")
    ticks = [*_decade_ticks(norm)] if what == "share" else [(v / 5, f"{v / 5:g}") for v in range(6)]
    label = "R: energy in\nfreed directions" if what == "share" else "free directions\n(share)"
    sheet.scale(norm, ticks, label, x=wide - 0.95, bottom=bottom, top=top)
    return sheet.finished()


def _decade_ticks(norm: Normalize) -> Iterator[tuple[float, str]]:
    low, high = float(norm.vmin or 0.0), float(norm.vmax or 1.0)
    for power in range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1):
        yield min(max(10.0**power, low), high), f"{10.0**power:g}".replace("e-0", "e-")


def _cells(
    sheet: Sheet, grid: Array, norm: Normalize, left: float, top: float, cell: float, height: float
) -> None:
    rows, columns = grid.shape
    sheet.image(grid, norm, (left, top - rows * height, columns * cell, rows * height))


def _numbers(
    sheet: Sheet, grid: Array, norm: Normalize, left: float, top: float, cell: float,
    height: float, *, digits: int,
) -> None:  # fmt: skip
    """Numbers in the cells, black on light ones; smaller where three digits need it."""
    least = norm.vmin or 0.0
    for (i, j), value in np.ndenumerate(grid):
        if np.isfinite(value):
            text = cell_text(float(value), digits)
            size = min(NUMBER, NUMBER * cell * 0.94 / width(text, NUMBER))
            place = left + (j + 0.5) * cell, top - (i + 0.5) * height
            colour = _contrast(norm, max(float(value), least))
            sheet.stamp(text, *place, colour=colour, size=round(size, 1))


def _contrast(norm: Normalize, value: float) -> str:
    """Black or white, whichever is easier to read on the cell."""
    share: Any = norm(value)
    return "black" if share > LIGHT else "white"
