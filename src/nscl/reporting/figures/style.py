"""How every figure looks: Okabe and Ito's colours, a marker and a dash per series, plain axes.

Colours: M. Okabe and K. Ito, "Color Universal Design", 2008. Markers and dashes distinguish series
in grey. Sizes are those of a paper: 3.4 inches for one column, 7 for two, text of 8 points.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nscl.metrics import Summary
from nscl.reporting.figures.texts import FONT, fitted, width
from nscl.reporting.plot_styles import COLOURS, DASHES, PlotStyle, first_styles, section_styles
from nscl.reporting.series import Section

MARKERS = ("o", "s", "^", "D", "v", "P", "<", ">", "h", "X", "*")
COLUMN, PAGE = 3.4, 7.0
FEW, MANY_PANELS = 8, 12
LEGEND_SIZE = 7.5
# Inches: a legend's line with the space around it, and the least for it and its text if there are
# many; beyond this number of entries a legend is of no use.
HANDLE, NARROWEST_ENTRY, MOST_ENTRIES = 0.62, 2.3, 48

_RC: dict[str, Any] = {
    "font.family": FONT,
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": LEGEND_SIZE,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "legend.columnspacing": 1.2,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "hatch.linewidth": 0.5,
    "svg.hashsalt": "nscl",
    "figure.dpi": 180,  # as saved, so that texts are measured as they are drawn
    "savefig.dpi": 180,
}


@dataclass(frozen=True)
class Ink:
    """Colour, marker and dash of one series, the same in all figures of a section."""

    colour: str
    marker: str
    dash: Any
    open: bool = False  # the markers of what keeps old data, as on the page

    @property
    def point(self) -> dict[str, Any]:
        """A marker as arguments of ``plot``."""
        inside = "white" if self.open else self.colour
        return {"color": self.colour, "marker": self.marker, "markerfacecolor": inside}

    @property
    def line(self) -> dict[str, Any]:
        """As arguments of ``plot``."""
        return {**self.point, "linestyle": self.dash}


def inks(section: Section) -> list[Ink]:
    """The inks of all shown series of a section, in order."""
    pairs = zip(section.shown, section_styles(section), strict=True)
    return [replace(_ink(style), open=series.stores == "data") for series, style in pairs]


def some_inks(count: int) -> list[Ink]:
    """The first ``count`` inks, for lines that are not series of a section."""
    return [_ink(style) for style in first_styles(count)]


def _ink(style: PlotStyle) -> Ink:
    return Ink(COLOURS[style.colour], MARKERS[style.marker], _dash(style.dash))


def _dash(index: int) -> Any:
    """The dash as matplotlib's offset and lengths."""
    # The last begins later: in a legend its one gap would be behind the marker.
    offset = 3 if index == len(DASHES) - 1 else 0
    return (offset, DASHES[index]) if DASHES[index] else "-"


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save within this, so that no other settings of matplotlib are touched."""
    settings: dict[Any, Any] = {**mpl.rcParamsDefault}
    settings.update(_RC, backend=mpl.rcParams["backend"])
    with mpl.rc_context(settings):
        yield


def laid_out(figure: Figure) -> Figure:
    """Find the places of all parts once and for all formats."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)  # draws nothing: half the time of a draw without rendering
        figure.set_layout_engine(None)
    return figure


def canvas(width: float, height: float) -> Figure:
    """An empty figure whose parts make room for each other."""
    return Figure(figsize=(width, height), layout="constrained")


def width_for(count: int) -> float:
    """One column of a paper, or its whole width where the legend is long."""
    return COLUMN if count <= FEW else PAGE


def columns_for(count: int) -> int:
    """How many panels stand side by side."""
    return 2 if count in (2, 4) else min(3 if count <= MANY_PANELS else 4, count)


def panels(count: int, *, columns: int, height: float) -> tuple[Figure, list[Axes]]:
    """A page-wide grid of equal axes; those not needed are left out."""
    rows = math.ceil(count / columns)
    figure = canvas(PAGE if columns > 1 else COLUMN, height * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    axes = [ax for row in grid for ax in row]
    for unused in axes[count:]:
        unused.remove()
    return figure, axes[:count]


def outer_labels(axes: Sequence[Axes], x: str, y: str, *, columns: int) -> None:
    """Numbers and names only at the margins of a grid of panels with the same axes."""
    for i, ax in enumerate(axes):
        below, beside = i + columns >= len(axes), i % columns == 0
        ax.tick_params(labelbottom=below, labelleft=beside)
        ax.set_xlabel(x if below else "")
        ax.set_ylabel(y if beside else "")


def curve(
    ax: Axes, x: Sequence[float], points: Sequence[Summary], ink: Ink, label: str,
    *, most: float = math.inf,
) -> None:  # fmt: skip
    """A line of means with a band of one deviation, which ends at 0 and at ``most``."""
    means = [p.mean for p in points]
    every = math.ceil(len(means) / 8)
    last = (len(means) - 1) % every  # the first marker, so that the last point has one
    ax.plot(x, means, label=label, markevery=(last, every), **ink.line)
    if any(p.std for p in points):
        low = [max(0.0, p.mean - (p.std or 0.0)) for p in points]
        high = [min(most, p.mean + (p.std or 0.0)) for p in points]
        ax.fill_between(x, low, high, color=ink.colour, alpha=0.1, linewidth=0)


def handles_of(ax: Axes) -> list[tuple[Any, str]]:
    """What is drawn in an axes and its label; the markers of error bars without their bars."""
    pairs = zip(*ax.get_legend_handles_labels(), strict=True)
    return [(h[0] if isinstance(h, ErrorbarContainer) else h, label) for h, label in pairs]


def legend(figure: Figure, entries: Sequence[tuple[Any, str]]) -> None:
    """One legend under the figure, as many columns as fit; the figure grows by its height."""
    handles, labels = [handle for handle, _ in entries], [label for _, label in entries]
    if len(labels) > MOST_ENTRIES:
        labels = [*labels[: MOST_ENTRIES - 1], f"and {len(labels) - MOST_ENTRIES + 1} more"]
        handles = [*handles[: MOST_ENTRIES - 1], Line2D([], [], linestyle="none")]
    columns, texts = _arranged(labels, figure.get_figwidth())
    heights = [0.06 + 0.13 * (1 + text.count("\n")) for text in texts]
    tallest = max((sum(column) for column in np.array_split(heights, columns)), default=0.0)
    figure.set_figheight(figure.get_figheight() + tallest + 0.1)
    figure.legend(handles, texts, loc="outside lower center", ncols=columns)


def _arranged(labels: Sequence[str], room: float) -> tuple[int, list[str]]:
    """How many columns a legend has, and its texts: long ones in two lines."""
    most = max(1, int(room // NARROWEST_ENTRY)) if len(labels) > FEW else 1
    widest = max((width(label, LEGEND_SIZE) for label in labels), default=0.0)
    columns = max(most, int(room // (HANDLE + widest)), 1)
    each = room / columns - HANDLE
    return max(1, min(columns, len(labels))), [
        fitted(label, each, size=LEGEND_SIZE) for label in labels
    ]


def task_axis(ax: Axes, tasks: int, label: str = "after task") -> None:
    """Tasks from 1, at most a dozen labels."""
    step = math.ceil(tasks / 12)
    ax.set_xticks(range(1, tasks + 1, step))
    ax.set_xlabel(label)
