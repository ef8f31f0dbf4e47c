"""Accuracy after each task, on average and task by task; ACC against BWT; time per step."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from nscl.metrics import Summary
from nscl.reporting.errors import NoFigureDataError
from nscl.reporting.figures.style import (
    Ink,
    canvas,
    columns_for,
    curve,
    inks,
    legend,
    panels,
    task_axis,
    width_for,
)
from nscl.reporting.plot_data.curves import acc_curve, step_times, task_curve
from nscl.reporting.plot_data.spectral import evenly
from nscl.reporting.series import Section

MOST_TASKS, HEIGHT = 9, 2.5


def acc_after_task(section: Section) -> Figure:
    """ACC over the tasks so far, a line per series."""
    _needs_tasks(section, 2)
    figure = canvas(width_for(len(section.shown)), HEIGHT)
    ax = figure.add_subplot()
    for series, ink in zip(section.shown, inks(section), strict=True):
        points = acc_curve(series)
        curve(ax, range(1, len(points) + 1), points, ink, series.marked, most=100.0)
    ax.set_ylabel("ACC (%)")
    task_axis(ax, section.tasks)
    legend(figure, ax)
    return figure


def task_accuracy(section: Section) -> Figure:
    """A panel per task: how its accuracy goes on while later tasks are learned."""
    _needs_tasks(section, 2)
    tasks = evenly(section.tasks - 1, MOST_TASKS)
    columns = columns_for(len(tasks))
    figure, axes = panels(len(tasks), columns=columns, height=1.75)
    for task, ax in zip(tasks, axes, strict=True):
        for series, ink in zip(section.shown, inks(section), strict=True):
            if task < series.tasks:
                points = task_curve(series, task)
                x = range(task + 1, task + 1 + len(points))
                curve(ax, x, points, ink, series.marked, most=100.0)
        ax.set_title(f"task {task + 1}", loc="left")
        task_axis(ax, section.tasks)
        ax.set_xlim(0.6, section.tasks + 0.4)
    _one_range(axes)
    _outer_labels(axes, "accuracy (%)", columns=columns)
    legend(figure, axes[0])
    return figure


def acc_bwt(section: Section) -> Figure:
    """All methods in one plane: up is accurate, right forgets nothing."""
    pairs = zip(section.shown, inks(section), strict=True)
    shown = [(series, ink) for series, ink in pairs if series.finished]
    if not shown:
        raise NoFigureDataError("no run is finished")
    figure = canvas(width_for(len(shown)), HEIGHT)
    ax = figure.add_subplot()
    for series, ink in shown:
        acc, bwt = series.figure("acc"), series.figure("bwt")
        if acc and bwt:
            ax.errorbar(
                bwt.mean, acc.mean, xerr=bwt.std, yerr=acc.std, label=series.marked,
                markersize=5.5, linestyle="none", elinewidth=0.8, capsize=2, **ink.point,
            )  # fmt: skip
    ax.axvline(0, color="#767676", linewidth=0.6)
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    keeps = "; open markers keep old data" if any(ink.open for _, ink in shown) else ""
    ax.set_xlabel(f"BWT (points){keeps}")
    ax.set_ylabel("ACC (%)")
    legend(figure, ax)
    return figure


def step_time(section: Section) -> Figure:
    """Milliseconds per step in each task."""
    found: list[tuple[Ink, str, list[Summary]]] = []
    for series, ink in zip(section.shown, inks(section), strict=True):
        try:
            found.append((ink, series.marked, step_times(series)))
        except NoFigureDataError:
            continue
    if not found:
        raise NoFigureDataError("no run has epochs on record (metrics.jsonl)")
    figure = canvas(width_for(len(found)), HEIGHT)
    ax = figure.add_subplot()
    for ink, label, times in found:
        curve(ax, range(1, len(times) + 1), times, ink, label)
    ax.set_ylim(bottom=0)
    ax.set_ylabel("time per step (ms)")
    task_axis(ax, max(len(times) for _, _, times in found), "task")
    legend(figure, ax)
    return figure


def _needs_tasks(section: Section, tasks: int) -> None:
    if section.tasks < tasks:
        raise NoFigureDataError(f"it takes {tasks} finished tasks, there are {section.tasks}")


def _one_range(axes: list[Axes]) -> None:
    """The same heights mean the same in all panels."""
    limits = [ax.get_ylim() for ax in axes]
    for ax in axes:
        ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def _outer_labels(axes: list[Axes], label: str, *, columns: int) -> None:
    for i, ax in enumerate(axes):
        if i % columns == 0:
            ax.set_ylabel(label)
        if i + columns < len(axes):
            ax.set_xlabel("")
