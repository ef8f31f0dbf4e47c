"""ACC and BWT against a swept option, and losses of old tasks while later ones are learned."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from nscl.reporting.errors import NoFigureDataError
from nscl.reporting.figures.style import (
    PAGE,
    Ink,
    canvas,
    columns_for,
    inks,
    legend,
    panels,
    some_inks,
)
from nscl.reporting.figures.texts import fitted
from nscl.reporting.plot_data import curves
from nscl.reporting.plot_data.sweeps import Sweep, logarithmic
from nscl.reporting.series import Section

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
        legend(figure, axes[0])
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


def old_losses(section: Section) -> Figure:
    """A panel per old task: its training loss over all epochs, a line per series."""
    found: list[tuple[Ink, str, curves.OldLosses]] = []
    reason = "no task is finished"
    for series, ink in zip(section.shown, inks(section), strict=True):
        try:
            found.append((ink, series.marked, curves.old_losses(series)))
        except NoFigureDataError as problem:
            reason = str(problem)
    if not found:
        raise NoFigureDataError(reason)
    count = max(len(losses.curves) for _, _, losses in found)
    begun = max(losses.begun for _, _, losses in found)
    columns = columns_for(count)
    figure, axes = panels(count, columns=columns, height=2.3)
    for task, ax in enumerate(axes):
        for ink, label, losses in found:
            if task < len(losses.curves):
                _loss_curve(ax, losses, task, ink, label)
        ax.set_title(f"task {task + 1}", loc="left")
        ax.set_xlabel("task being learned")
        task_places(ax, begun)
    _loss_scale(axes, [losses for _, _, losses in found])
    for ax in axes[::columns]:
        ax.set_ylabel("training loss")
    legend(figure, axes[0])
    return figure


def _loss_scale(axes: Sequence[Axes], found: Iterable[curves.OldLosses]) -> None:
    """One logarithmic scale for all panels, with numbers as one writes them: 1.5, not 1.5 × 10⁰."""
    known = [loss for losses in found for values in losses.curves for loss in values if loss]
    if not known:
        return  # a logarithm has no place for losses of exactly zero
    low, high = min(known) / 1.1, max(known) * 1.1
    steps = {1: (1.0, 1.5, 2.0, 3.0, 5.0, 7.0), 2: (1.0, 3.0), 3: (1.0, 3.0)}  # by decades
    within = steps.get(math.ceil(math.log10(high / low)), (1.0,))
    for ax in axes:
        ax.set_yscale("log")
        ax.set_ylim(low, high)
        ax.yaxis.set_major_locator(LogLocator(subs=within))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_locator(NullLocator())


def task_places(ax: Axes, tasks: int) -> None:
    """Number the tasks between the lines at which they begin."""
    step = math.ceil(tasks / 10)
    ax.set_xticks([t + 0.5 for t in range(0, tasks, step)])
    ax.set_xticklabels([str(t + 1) for t in range(0, tasks, step)])
    ax.tick_params(axis="x", length=0)
    ax.grid(visible=False, axis="x")
    for begin in range(step, tasks, step):
        ax.axvline(begin, color="#cccccc", linewidth=0.6, zorder=0)
    ax.set_xlim(0, tasks)


def _loss_curve(ax: Axes, losses: curves.OldLosses, task: int, ink: Ink, label: str) -> None:
    points = [(x, v) for x, v in zip(losses.places, losses.curves[task], strict=True) if v]
    every = max(1, len(points) // 8)
    ax.plot(*zip(*points, strict=True), label=label, markevery=every, clip_on=False, **ink.line)
