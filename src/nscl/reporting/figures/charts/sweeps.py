"""ACC and BWT against a swept option: two panels, a line for each setting of everything else."""

import math
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nscl.reporting.figures.style import PAGE, Ink, canvas, handles_of, legend, some_inks
from nscl.reporting.figures.texts import fitted
from nscl.reporting.plot_data.sweeps import Sweep, logarithmic

_GAP = 0.08  # of the axis, between ticks whose numbers can be read


def sweep(found: list[Sweep]) -> Figure:
    """Two panels over one option; a line for each setting of everything else."""
    figure = canvas(PAGE, 2.2)
    axes = figure.subplots(1, 2)
    for ax, name, label in zip(axes, ("acc", "bwt"), ("ACC (%)", "BWT (points)"), strict=True):
        for each, ink in zip(found, some_inks(len(found)), strict=True):
            _sweep_curve(ax, each, name, ink)
        if logarithmic(found):
            ax.set_xscale("log")
        _swept_ticks(ax, sorted({value for each in found for value in each.values}))
        ax.set_xlabel(fitted(f"{found[0].option} ({found[0].method})", 3.0))
        ax.set_ylabel(label)
        if name == "bwt":
            ax.axhline(0, color="#767676", linewidth=0.6)
    if any(each.beside for each in found):
        legend(figure, handles_of(axes[0]))
    return figure


def _swept_ticks(ax: Axes, values: list[float]) -> None:
    """Where runs are, there is a tick; where these would collide, the scale has its own."""
    places = [math.log(v) for v in values] if ax.get_xscale() == "log" else values
    gaps = [after - before for before, after in pairwise(places)]
    if min(gaps) >= _GAP * (places[-1] - places[0]):
        ax.set_xticks(values, [f"{value:g}" for value in values])
        ax.set_xticks([], minor=True)


def _sweep_curve(ax: Axes, found: Sweep, name: str, ink: Ink) -> None:
    points = [series.figure(name) for series in found.series]
    means = [p.mean if p else math.nan for p in points]
    stds = [(p.std or 0.0) if p else 0.0 for p in points]
    ax.errorbar(
        found.values, means, yerr=stds, capsize=2.5, elinewidth=0.8, label=found.label, **ink.line
    )
