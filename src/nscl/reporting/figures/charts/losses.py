"""Losses on logarithmic axes: of a task while it is learned, of old tasks while later ones are."""

import math
from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from nscl.metrics import Summary
from nscl.reporting.errors import NoFigureDataError
from nscl.reporting.figures.crowd import Crowd, crowd
from nscl.reporting.figures.style import columns_for, legend, outer_labels, panels, task_axis
from nscl.reporting.plot_data import curves
from nscl.reporting.plot_data.spectral import evenly
from nscl.reporting.plot_data.training import training_losses
from nscl.reporting.series import Section

MOST_TASKS = 9


def training_loss(section: Section, standing: Sequence[bool] = ()) -> Figure:
    """A panel per task: its training loss, epoch by epoch, a line per series."""
    found, reason = crowd(section, training_losses, standing)
    if not found.members:
        raise NoFigureDataError(reason)
    begun = sorted({task for member in found.members for task in member.data})
    tasks = [begun[i] for i in evenly(len(begun), MOST_TASKS)]
    columns = columns_for(len(tasks))
    figure, axes = panels(len(tasks), columns=columns, height=1.75)
    for task, ax in zip(tasks, axes, strict=True):
        lines = {i: each.data.get(task, []) for i, each in enumerate(found.members)}
        _epochs(ax, found, lines)
        ax.set_title(f"task {task + 1}", loc="left")
    every = [m.data[task] for m in found.members for task in tasks if task in m.data]
    longest = max(map(len, every))
    for ax in axes:
        task_axis(ax, longest)
        ax.set_xlim(0.7, longest + 0.3)
    _loss_scale(axes, [point.mean for points in every for point in points])
    outer_labels(axes, "epoch of the task", "training loss", columns=columns)
    legend(figure, found.handles())
    return figure


def _epochs(
    ax: Axes, found: Crowd[dict[int, list[Summary]]], lines: dict[int, list[Summary]]
) -> None:
    places = {
        i: [(e + 1, p.mean) for e, p in enumerate(points) if p.mean > 0]
        for i, points in lines.items()
    }
    found.draw_lines(ax, places)


def old_losses(section: Section, standing: Sequence[bool] = ()) -> Figure:
    """A panel per old task: its training loss over all epochs, a line per series."""
    found, reason = crowd(section, curves.old_losses, standing)
    if not found.members:
        raise NoFigureDataError(reason)
    every = [member.data for member in found.members]
    count = max(len(losses.curves) for losses in every)
    begun = max(losses.begun for losses in every)
    columns = columns_for(count)
    figure, axes = panels(count, columns=columns, height=2.3)
    for task, ax in enumerate(axes):
        found.draw_lines(ax, {i: _points(losses, task) for i, losses in enumerate(every)})
        ax.set_title(f"task {task + 1}", loc="left")
        task_places(ax, begun)
    _loss_scale(axes, [v for losses in every for values in losses.curves for v in values if v])
    outer_labels(axes, "task being learned", "training loss", columns=columns)
    legend(figure, found.handles())
    return figure


def _points(losses: curves.OldLosses, task: int) -> list[tuple[float, float]]:
    if task >= len(losses.curves):
        return []
    return [(x, v) for x, v in zip(losses.places, losses.curves[task], strict=True) if v]


def _loss_scale(axes: Sequence[Axes], known: Iterable[float]) -> None:
    """One logarithmic scale for all panels, with numbers as one writes them: 1.5, not 1.5 × 10⁰."""
    known = [loss for loss in known if loss > 0]
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
