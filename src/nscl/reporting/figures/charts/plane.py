"""The plane of ACC and BWT: a marker per series with its name beside it, and bars of deviation."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from nscl.metrics import Summary
from nscl.reporting.errors import NoFigureDataError
from nscl.reporting.figures.names import Box, placed
from nscl.reporting.figures.style import FEW, canvas, handles_of, inks, laid_out, legend, width_for
from nscl.reporting.figures.texts import POINTS, fitted, width
from nscl.reporting.series import Section

HEIGHT, TALL = 2.5, 3.4
SIZE, MARKER, LONGEST = 7.0, 0.06, 1.5  # points; inches: half of a marker, the widest name


def acc_bwt(section: Section) -> Figure:
    """All methods in one plane: up is accurate, right forgets nothing."""
    pairs = zip(section.shown, inks(section), strict=True)
    shown = [(series, ink) for series, ink in pairs if series.finished]
    if not shown:
        raise NoFigureDataError("no run is finished")
    figure = canvas(width_for(len(shown)), HEIGHT if len(shown) <= FEW else TALL)
    ax = figure.add_subplot()
    points = []
    for series, ink in shown:
        acc, bwt = series.figure("acc"), series.figure("bwt")
        if acc and bwt:
            points.append(_Point(series.marked, bwt, acc))
            ax.errorbar(
                bwt.mean, acc.mean, xerr=bwt.std, yerr=acc.std, label=series.marked,
                markersize=5.5, linestyle="none", elinewidth=0.8, capsize=2, **ink.point,
            )  # fmt: skip
    ax.margins(0.08)
    ax.axvline(0, color="#767676", linewidth=0.6)
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    keeps = "; open markers keep old data" if any(ink.open for _, ink in shown) else ""
    ax.set_xlabel(f"BWT (points){keeps}")
    ax.set_ylabel("ACC (%)")
    legend(figure, handles_of(ax))
    named(laid_out(figure), ax, points)
    return figure


class _Point(NamedTuple):
    """A marker and its bars."""

    label: str
    bwt: Summary
    acc: Summary


def named(figure: Figure, ax: Axes, points: Sequence[_Point]) -> None:
    """A name beside each marker, where it overlaps nothing; the legend has those without room."""
    box = ax.get_position()
    wide, high = figure.get_size_inches()
    frame = Box(box.x0 * wide, box.y0 * high, box.x1 * wide, box.y1 * high)
    names = [fitted(point.label, LONGEST, size=SIZE, lines=1) for point in points]
    sizes = [(width(name.replace(r"\$", "$"), SIZE), SIZE / POINTS) for name in names]
    markers = [_inches(ax, point.bwt.mean, point.acc.mean) for point in points]
    bars = [bar for point in points for bar in _bars(ax, point)]
    places = placed(markers, sizes, frame, MARKER, bars)
    for name, place in zip(names, places, strict=True):
        if place is not None:
            x, y = place.left / wide, place.middle / high
            figure.text(x, y, name, fontsize=SIZE, va="center_baseline", gid="name")


def _bars(ax: Axes, point: _Point) -> Iterator[Box]:
    """The bars of one deviation, as thin as they are drawn."""
    (bwt, acc), thin = point[1:], 0.01
    if bwt.std:
        (left, y), (right, _) = (_inches(ax, bwt.mean + s * bwt.std, acc.mean) for s in (-1, 1))
        yield Box(left, y - thin, right, y + thin)
    if acc.std:
        (x, low), (_, top) = (_inches(ax, bwt.mean, acc.mean + s * acc.std) for s in (-1, 1))
        yield Box(x - thin, low, x + thin, top)


def _inches(ax: Axes, x: float, y: float) -> tuple[float, float]:
    left, bottom = ax.transData.transform((x, y)) / ax.figure.dpi
    return float(left), float(bottom)
