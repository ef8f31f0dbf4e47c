"""The paper's singular-value curves: what each layer's inputs use, and the part that was freed."""

import math
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

import numpy as np
from matplotlib.figure import Figure

from nscl.reporting.figures.sheets import GREY, Point, Sheet
from nscl.reporting.figures.style import COLUMN, PAGE
from nscl.reporting.figures.texts import fitted, width
from nscl.reporting.plot_data.spectral import (
    FREE,
    LayerSpectrum,
    evenly,
    layer_names,
    short_names,
    spectra,
)
from nscl.reporting.plot_styles import FREED, HELD
from nscl.reporting.series import Series

MOST_LAYERS, MOST_TASKS = 6, 3
MOST_POINTS = 300  # of a curve: more than the dots of a panel's width
FLOOR = 1e-10  # relative; smaller values are rounding errors, and zero has no logarithm
HEAD, ROW, FOOT = 0.35, 1.42, 0.55  # inches: above all panels, a panel with its texts, below all
LEFT, BESIDE, ABOVE, BELOW = 0.75, 0.55, 0.36, 0.28  # inches around the axes of a panel
FADED = "#bfdbeb"  # the colour of what is freed, at a quarter, on white


def singular_values(series: Series) -> Figure:
    """A row per layer, a column per task (first, middle, last), R in every panel."""
    _, tasks = spectra(series)
    names = layer_names(tasks)
    shown = short_names(names)
    layers = evenly(len(names), MOST_LAYERS)
    columns = [[*tasks][i] for i in evenly(len(tasks), MOST_TASKS)]
    page = PAGE if len(columns) > 1 else COLUMN
    sheet = Sheet(page, HEAD + ROW * len(layers) + FOOT)
    wide = (page - LEFT - 0.1 - BESIDE * (len(columns) - 1)) / len(columns)
    panels = [
        Panel(
            tasks[task][names[layer]], shown[layer], task + 1,
            left=LEFT + j * (wide + BESIDE), width=wide,
            top=sheet.height - HEAD - i * ROW - ABOVE, height=ROW - ABOVE - BELOW,
        )
        for i, layer in enumerate(layers)
        for j, task in enumerate(columns)
        if names[layer] in tasks[task]
    ]  # fmt: skip
    _draw(sheet, panels)
    for i in range(len(layers)):
        y = sheet.height - HEAD - i * ROW - (ABOVE + ROW - BELOW) / 2
        sheet.text(LEFT - 0.48, y, "singular value", rotation=90, ha="right", va="center")
    for j in range(len(columns)):
        sheet.text(
            LEFT + j * (wide + BESIDE) + wide / 2, FOOT - 0.02, "index", ha="center", va="top"
        )
    title = f"{series.marked}: singular values of the inputs' covariance"
    sheet.text(
        page / 2, sheet.height - 0.06, fitted(title, page - 0.4, lines=2), va="top", ha="center"
    )
    _key(sheet, page / 2)
    return sheet.finished()


class Panel:
    """One spectrum on logarithmic axes, as places in inches."""

    def __init__(
        self, spectrum: LayerSpectrum, layer: str, task: int, *, left: float, width: float,
        top: float, height: float,
    ) -> None:  # fmt: skip
        self.left, self.width, self.top, self.height = left, width, top, height
        self.bottom = top - height
        room = width * 0.97
        name = fitted(layer, room, size=7.5, lines=1).replace(r"\$", "$")
        self.title = (name, f"after task {task}: R = {spectrum.share:.2g}")
        self.note = f"{spectrum.free:.0f} of {len(spectrum.values)} free"
        most = float(spectrum.values.max()) or 1.0
        kept = evenly(len(spectrum.values), MOST_POINTS)
        values = np.maximum(spectrum.values, most * FLOOR)
        self.low, self.high = math.log10(values.min() * 0.3), math.log10(most * 4)
        self.size = len(values)
        self.points = [(self.x(i + 1), self.y(math.log10(values[i]))) for i in kept]
        self.free = [bool(spectrum.weights[i] > FREE) for i in kept]

    def x(self, index: float) -> float:
        """Where an index from 1 on stands."""
        return self.left + self.width * (0.03 + 0.94 * (index - 1) / max(1, self.size - 1))

    def y(self, power: float) -> float:
        """Where a power of ten stands."""
        return self.bottom + self.height * (power - self.low) / (self.high - self.low)

    def freed(self) -> Iterator[list[Point]]:
        """Stretches of the curve that are free; one direction alone is as wide as a step."""
        step = self.width * 0.47 / max(1, len(self.points) - 1)
        for free, stretch in groupby(zip(self.free, self.points, strict=True), key=itemgetter(0)):
            if free:
                line = [point for _, point in stretch]
                (left, first), (right, last) = line[0], line[-1]
                yield [(left - step, first), *line, (right + step, last)]

    def under_note(self) -> list[Point]:
        """A light ground for the number of free directions."""
        left, right = self.left + 0.03, self.left + 0.09 + width(self.note, 7.5)
        low, high = self.bottom + 0.02, self.bottom + 0.18
        return [(left, low), (right, low), (right, high), (left, high), (left, low)]

    def powers(self) -> list[int]:
        """Up to four powers of ten on the axis."""
        inside = range(math.ceil(self.low), math.floor(self.high) + 1)
        return [*inside[:: max(1, math.ceil(len(inside) / 4))]]

    def indices(self) -> list[int]:
        """Round indices on the axis."""
        rough = self.size / 4
        unit = 10.0 ** math.floor(math.log10(max(rough, 1.0)))
        step = max(1, int(unit * next(m for m in (1, 2, 5, 10) if unit * m * 1.001 >= rough)))
        return [*range(step, self.size + 1, step)]


def _draw(sheet: Sheet, panels: list[Panel]) -> None:
    """All panels at once: one artist for each kind of line."""
    grid = [[(p.left, p.y(e)), (p.left + p.width, p.y(e))] for p in panels for e in p.powers()]
    sheet.lines(grid, colors=GREY, linewidths=0.5, zorder=0)
    floors = [
        [*run, (run[-1][0], p.bottom), (run[0][0], p.bottom)] for p in panels for run in p.freed()
    ]
    sheet.area([[*each, each[0]] for each in floors], facecolors=FADED, linewidths=0, zorder=1)
    frames = [[(p.left, p.top), (p.left, p.bottom), (p.left + p.width, p.bottom)] for p in panels]
    sheet.lines(frames, colors="black", linewidths=0.6, zorder=2)
    sheet.lines([p.points for p in panels], colors=HELD, linewidths=1.4, zorder=3)
    sheet.lines([run for p in panels for run in p.freed()], colors=FREED, linewidths=2.0, zorder=4)
    sheet.area([p.under_note() for p in panels], facecolors="#ffffffcc", linewidths=0, zorder=5)
    for panel in panels:
        for line, text in enumerate(panel.title):
            y = panel.top + 0.24 - 0.13 * line
            sheet.stamp(text, panel.left, y, size=7.5, align="left")
        sheet.stamp(panel.note, panel.left + 0.06, panel.bottom + 0.1, size=7.5, align="left")
        for power in panel.powers():
            sheet.stamp(_power(power), panel.left - 0.05, panel.y(power), align="right")
        for index in panel.indices():
            sheet.stamp(str(index), panel.x(index), panel.bottom - 0.1)


def _power(power: int) -> str:
    """The number as one writes it; an exponent where that would be long."""
    return f"{10.0**power:g}" if -3 <= power <= 4 else f"1e{power}"


def _key(sheet: Sheet, middle: float) -> None:
    y = 0.16
    sheet.lines([[(middle - 1.1, y), (middle - 0.8, y)]], colors=HELD, linewidths=1.4)
    sheet.text(middle - 0.72, y, "held", va="center")
    box = [
        (middle - 0.2, y - 0.05),
        (middle + 0.1, y - 0.05),
        (middle + 0.1, y + 0.05),
        (middle - 0.2, y + 0.05),
    ]
    sheet.area([[*box, box[0]]], facecolors=FADED, edgecolors=FREED, linewidths=1.0)
    sheet.text(middle + 0.18, y, "freed (null space)", va="center")
