"""Accuracy after each task, on average and task by task, and time per step."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nscl.reporting.errors import NoFigureDataError
from nscl.reporting.figures.crowd import crowd
from nscl.reporting.figures.style import (
    canvas,
    columns_for,
    legend,
    outer_labels,
    panels,
    task_axis,
    width_for,
)
from nscl.reporting.plot_data.curves import acc_curve, step_times, task_curve
from nscl.reporting.plot_data.spectral import evenly
from nscl.reporting.series import Section
from nscl.reporting.tables.timing import how_rough

MOST_TASKS, HEIGHT = 9, 2.5


def acc_after_task(section: Section, standing: Sequence[bool] = ()) -> Figure:
    """ACC over the tasks so far, a line per series."""
    _needs_tasks(section, 2)
    found, _ = crowd(section, acc_curve, standing)
    figure = canvas(width_for(len(found.members)), HEIGHT)
    ax = figure.add_subplot()
    found.draw_curves(ax, 1, {i: m.data for i, m in enumerate(found.members)}, most=100.0)
    ax.set_ylabel("ACC (%)")
    task_axis(ax, section.tasks)
    legend(figure, found.handles())
    return figure


def task_accuracy(section: Section, standing: Sequence[bool] = ()) -> Figure:
    """A panel per task: how its accuracy goes on while later tasks are learned."""
    _needs_tasks(section, 2)
    found, _ = crowd(section, lambda series: series, standing)
    tasks = evenly(section.tasks - 1, MOST_TASKS)
    columns = columns_for(len(tasks))
    figure, axes = panels(len(tasks), columns=columns, height=1.75)
    for task, ax in zip(tasks, axes, strict=True):
        reached = [(i, m.data) for i, m in enumerate(found.members) if task < m.data.tasks]
        lines = {i: task_curve(series, task) for i, series in reached}
        found.draw_curves(ax, task + 1, lines, most=100.0)
        ax.set_title(f"task {task + 1}", loc="left")
        task_axis(ax, section.tasks)
        ax.set_xlim(0.6, section.tasks + 0.4)
    _one_range(axes)
    outer_labels(axes, "after task", "accuracy (%)", columns=columns)
    legend(figure, found.handles())
    return figure


def step_time(section: Section, standing: Sequence[bool] = ()) -> Figure:
    """Milliseconds per step in each task."""
    found, _ = crowd(section, step_times, standing)
    if not found.members:
        raise NoFigureDataError("no run has epochs on record (metrics.jsonl)")
    figure = canvas(width_for(len(found.members)), HEIGHT)
    ax = figure.add_subplot()
    found.draw_curves(ax, 1, {i: m.data for i, m in enumerate(found.members)})
    ax.set_ylim(bottom=0)
    ax.set_ylabel("time per step (ms)")
    ax.set_title(how_rough(section.shown).strip(" ()"), loc="right")
    task_axis(ax, max(len(m.data) for m in found.members), "task")
    legend(figure, found.handles())
    return figure


def _needs_tasks(section: Section, tasks: int) -> None:
    if section.tasks < tasks:
        raise NoFigureDataError(f"it takes {tasks} finished tasks, there are {section.tasks}")


def _one_range(axes: list[Axes]) -> None:
    """The same heights mean the same in all panels."""
    limits = [ax.get_ylim() for ax in axes]
    for ax in axes:
        ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
