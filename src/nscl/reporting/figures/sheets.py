"""A page on which everything has its place in inches, for figures of many equal parts.

A heat map has hundreds of numbers, and a figure of spectra eighteen panels. As axes, ticks and
texts of matplotlib's own each would be measured, laid out and drawn one by one, which took most of
the time of a report. Here a short text becomes a path once, and is stamped wherever it stands.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Literal

import numpy as np
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.image import AxesImage
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.textpath import TextPath

from nscl.reporting.figures.texts import FONT, POINTS, plain, width
from nscl.reporting.plot_data.spectral import Array

Align = Literal["left", "center", "right"]
Point = tuple[float, float]
MAP = "cividis"  # the same to colour-blind eyes, and rises evenly in grey
GREY = "#d9d9d9"
FINE = 4.0  # how much larger letters are when their curves become lines
MIDDLE = 0.365  # of a font's size: half of the height of its digits
BAR, TICK = 0.16, 0.05  # inches: a scale's width, and between a scale and its numbers


class Sheet:
    """A figure with one pair of axes, whose units are inches from the lower left corner."""

    def __init__(self, wide: float, high: float) -> None:
        self.figure = SheetFigure(figsize=(wide, high))
        self.width, self.height = wide, high
        self._ax = self.figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self._ax.set_axis_off()
        self._ax.set_xlim(0.0, wide)
        self._ax.set_ylim(0.0, high)
        self._ax.set_autoscale_on(False)
        self._stamps: list[tuple[str, Point, str, float, Align]] = []

    def stamp(
        self, text: str, x: float, y: float, *, colour: str = "black", size: float = 7.0,
        align: Align = "center",
    ) -> None:  # fmt: skip
        """A short text that may stand in many places, its digits' middle at ``y``."""
        self._stamps.append((text, (x, y), colour, size, align))

    def text(self, x: float, y: float, text: str, **how: Any) -> Text:
        """A text of matplotlib's own."""
        return self._ax.text(x, y, text, **{"fontsize": 8, **how})

    def image(self, grid: Array, norm: Normalize, box: tuple[float, float, float, float]) -> None:
        """Coloured cells, the first row on top, from ``left, bottom`` over ``width, height``."""
        left, bottom, wide, high = box
        # A share of zero has no logarithm; it has the colour of the least.
        self._ax.add_image(
            image := AxesImage(self._ax, cmap=MAP, norm=norm, interpolation="nearest")
        )
        image.set_data(np.maximum(grid, norm.vmin or 0.0))
        image.set_extent((left, left + wide, bottom, bottom + high))

    def lines(self, lines: Iterable[Sequence[Point]], **how: Any) -> None:
        """Lines of one look."""
        self._ax.add_collection(
            LineCollection([np.array(line) for line in lines], **how), autolim=False
        )

    def area(self, corners: Iterable[Sequence[Point]], **how: Any) -> None:
        """Filled shapes of one look."""
        shapes = [Path(np.array(each), closed=True) for each in corners]
        self._ax.add_collection(
            PathCollection(shapes, transform=self._ax.transData, **how), autolim=False
        )

    def scale(
        self, norm: Normalize, ticks: Sequence[tuple[float, str]], label: str, *, x: float,
        bottom: float, top: float,
    ) -> None:  # fmt: skip
        """The scale of colours with its numbers, and what they are."""
        shades = np.linspace(1.0, 0.0, 256)[:, None]
        self.image(shades, Normalize(0.0, 1.0), (x, bottom, BAR, top - bottom))
        for value, text in ticks:
            y = bottom + float(np.asarray(norm(value))) * (top - bottom)
            self.lines([[(x + BAR, y), (x + BAR + TICK / 2, y)]], colors="black", linewidths=0.6)
            self.stamp(text, x + BAR + TICK, y, size=7.5, align="left")
        self.text(
            self.width - 0.06, (bottom + top) / 2, label, rotation=90, ha="right", va="center"
        )

    def finished(self) -> "SheetFigure":
        """The figure with all stamps on it: one artist for each letter, colour and size."""
        glyphs: defaultdict[tuple[str, str, float], list[Point]] = defaultdict(list)
        for text, (x, y), colour, size, align in self._stamps:
            left = x - _share_before(align) * width(text, size)
            for letter in text:
                if not letter.isspace():
                    glyphs[letter, colour, size].append((left, y))
                left += width(letter, size)
        inches = self.figure.dpi_scale_trans
        for (letter, colour, size), places in glyphs.items():
            stamps = PathCollection(
                [_path(letter, size)], sizes=None, offsets=places, offset_transform=inches,
                facecolors=[colour], edgecolors=[colour], linewidths=0.0,
            )  # fmt: skip
            stamps.set_transform(inches)
            self.figure.add_artist(stamps)
        self.figure.stamps = [(text, place) for text, place, *_ in self._stamps]
        return self.figure


class SheetFigure(Figure):
    """A figure that knows which stamps it has, and where: texts that are paths cannot be read."""

    stamps: list[tuple[str, Point]]


def _share_before(align: Align) -> float:
    """How much of a text stands to the left of its place."""
    return {"left": 0.0, "center": 0.5, "right": 1.0}[align]


@cache
def _path(letter: str, size: float) -> Path:
    """The outlines of a letter in inches, from its left end and the middle of digits."""
    prop = FontProperties(family=FONT)
    outlines = TextPath((0.0, 0.0), plain(letter), size=FINE * size, prop=prop)
    # Without curves, whose extent takes longer to find than the letter to draw.
    lines = outlines.cleaned(curves=False, simplify=False)
    middle = np.array([0.0, MIDDLE * size])
    return Path((np.asarray(lines.vertices) / FINE - middle) / POINTS, lines.codes)
