"""How every figure looks: Okabe and Ito's colours, a marker and a dash per series, sober axes.

Colours: M. Okabe and K. Ito, "Color Universal Design", 2008. Markers and dashes tell series apart
in grey. Sizes are those of a paper: 3.4 inches for one column, 7 for two, text of 8 points.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from nscl.metrics import Summary
from nscl.reporting.looks import looks
from nscl.reporting.series import Section

# Six of Okabe and Ito's, then the neutral ones of the two bounds (see ``nscl.reporting.looks``).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#767676", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "<", ">", "h", "X", "*")
DASHES: tuple[Any, ...] = (
    "-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (5, 1.4, 1.2, 1.4)), (0, (8, 2))
)  # fmt: skip
FREED, HELD = "#0072B2", "#767676"
COLUMN, PAGE = 3.4, 7.0

_RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
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
    "figure.dpi": 200,  # as saved, so that texts are measured as they are drawn
    "savefig.dpi": 200,
}


@dataclass(frozen=True)
class Ink:
    """Colour, marker and dash of one series, the same in all figures of a section."""

    colour: str
    marker: str
    dash: Any

    @property
    def line(self) -> dict[str, Any]:
        """As arguments of ``plot``."""
        return {"color": self.colour, "marker": self.marker, "linestyle": self.dash}


def inks(section: Section) -> list[Ink]:
    """The inks of all shown series of a section, in order."""
    return [Ink(COLOURS[c], MARKERS[m], DASHES[d]) for c, m, d in looks(section)]


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save within this, so that nobody else's settings are touched."""
    settings: dict[Any, Any] = {**mpl.rcParamsDefault}
    settings.update(_RC, backend=mpl.rcParams["backend"])
    with mpl.rc_context(settings):
        yield


def plain(text: str) -> str:
    """Text of others, in which a dollar sign begins no formula."""
    return text.replace("$", r"\$")


def laid_out(figure: Figure) -> Figure:
    """Find the places of all parts once and for all formats; long labels take a second round."""
    figure.draw_without_rendering()
    figure.draw_without_rendering()
    figure.set_layout_engine(None)
    return figure


def canvas(width: float, height: float) -> Figure:
    """An empty figure whose parts make room for each other."""
    return Figure(figsize=(width, height), layout="constrained")


def columns_for(count: int) -> int:
    """How many panels stand side by side."""
    return 2 if count in (2, 4) else min(3, count)


def panels(count: int, *, columns: int, height: float) -> tuple[Figure, list[Axes]]:
    """A page-wide grid of equal axes; those not needed are left out."""
    rows = math.ceil(count / columns)
    figure = canvas(PAGE if columns > 1 else COLUMN, height * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    axes = [ax for row in grid for ax in row]
    for unused in axes[count:]:
        unused.remove()
    return figure, axes[:count]


def curve(
    ax: Axes, x: Sequence[float], points: Sequence[Summary], ink: Ink, label: str,
    *, most: float = math.inf,
) -> None:  # fmt: skip
    """A line of means with a band of one deviation, which ends at 0 and at ``most``."""
    means = [p.mean for p in points]
    ax.plot(x, means, label=label, markevery=math.ceil(len(means) / 8), **ink.line)
    if any(p.std for p in points):
        low = [max(0.0, p.mean - (p.std or 0.0)) for p in points]
        high = [min(most, p.mean + (p.std or 0.0)) for p in points]
        ax.fill_between(x, low, high, color=ink.colour, alpha=0.1, linewidth=0)


def legend(figure: Figure, ax: Axes) -> None:
    """One legend under the figure, as many columns as fit."""
    handles, labels = ax.get_legend_handles_labels()
    # The markers of error bars without their bars.
    plain = [h[0] if isinstance(h, ErrorbarContainer) else h for h in handles]
    widest = max((len(label) for label in labels), default=1)
    room = figure.get_figwidth() / (0.5 + 0.06 * widest)
    columns = max(1, min(len(labels), int(room)))
    figure.legend(plain, labels, loc="outside lower center", ncols=columns)


def task_axis(ax: Axes, tasks: int, label: str = "after task") -> None:
    """Tasks from 1, at most a dozen labels."""
    step = math.ceil(tasks / 12)
    ax.set_xticks(range(1, tasks + 1, step))
    ax.set_xlabel(label)
