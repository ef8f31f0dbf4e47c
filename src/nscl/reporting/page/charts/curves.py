"""Cards of curves: ACC and accuracy after each task, time per step, sweeps, losses of old tasks."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from nscl.reporting.errors import NoFigureDataError
from nscl.reporting.page.charts.lines import LIMIT, line, line_chart
from nscl.reporting.page.charts.theme import (
    Card,
    Styles,
    choice,
    means,
    significant,
    styles_of,
)
from nscl.reporting.plot_data import curves, sweeps
from nscl.reporting.plot_data.spectral import evenly
from nscl.reporting.plot_styles import first_styles
from nscl.reporting.series import Section

MOST_EPOCHS = 300  # points of a curve: 50 runs must fit into 5 MB


def acc_card(section: Section) -> Iterator[Card]:
    """ACC over the tasks so far, after each task."""
    if section.tasks < 2:
        return
    lines = [
        line(series.marked, range(1, series.tasks + 1), means(curves.acc_curve(series)))
        for series in section.shown
    ]
    spec = _accuracies(section, lines, "ACC (%)")
    yield Card("acc", "ACC after each task", spec)


def task_card(section: Section) -> Iterator[Card]:
    """Accuracy on one task, which the reader chooses, while later tasks are learned."""
    if section.tasks < 2:
        return
    names = [f"task {task + 1}" for task in range(section.tasks - 1)]
    lines = [
        line(series.marked, range(task + 1, series.tasks + 1), means(points)) | {"task": name}
        for task, name in enumerate(names)
        for series in section.shown
        if (points := curves.task_curve(series, task) if task < series.tasks else [])
    ]
    picked = {"params": [choice(names)], "only": "datum.task == choice"}
    spec = _accuracies(section, lines, "accuracy (%)", **picked)
    yield Card("task", "Accuracy on one task while later ones are learned", spec)


def time_card(section: Section) -> Iterator[Card]:
    """Milliseconds per step in each task."""
    lines = []
    for series in section.shown:
        try:
            points = curves.step_times(series)
        except NoFigureDataError:
            continue
        lines.append(line(series.marked, range(1, len(points) + 1), means(points, 3)))
    if not lines:
        return
    spec = line_chart(
        lines,
        styles_of(section),
        x=_task_axis(max(len(each["x"]) for each in lines), "task"),
        y=_axis("ms", zero=True),
        text=_value(" ms"),
        heading="'task ' + datum.x",
        within=(0, LIMIT),
    )
    yield Card("times", "Time per step", spec)


def sweep_cards(section: Section) -> Iterator[Card]:
    """ACC and BWT against each option that was varied."""
    try:
        found = sweeps.sweeps(section)
    except NoFigureDataError:
        return
    for i, chart in enumerate(sweeps.together(found)):
        name = f"{chart[0].option} ({chart[0].method})"
        for key, label in (("acc", "ACC (%)"), ("bwt", "BWT (points)")):
            title = f"{label.split()[0]} against {name}"
            yield Card(f"sweep-{key}-{i}", title, _sweep(chart, key, name, label))


def _sweep(chart: Sequence[sweeps.Sweep], key: str, name: str, label: str) -> dict[str, Any]:
    lines = []
    for each in chart:
        points = [series.figure(key) for series in each.series]
        pairs = [(x, p) for x, p in zip(each.values, points, strict=True) if p]
        lines.append(line(each.label, [x for x, _ in pairs], means(p for _, p in pairs)))
    labels = [each.label for each in chart]
    styles = Styles(labels, first_styles(len(chart)), [False] * len(chart))
    logarithmic = sweeps.logarithmic(chart)
    spec = line_chart(
        lines,
        styles,
        x=alt.X(
            "x:Q",
            title=name,
            scale=(
                alt.Scale(type="log", nice=False, padding=14)
                if logarithmic
                else alt.Scale(zero=False, nice=False, padding=14)
            ),
            axis=alt.Axis(values=sorted({x for each in lines for x in each["x"]}), format="~g"),
        ),
        y=_axis(label),
        text=_value(""),
        heading=f"{_quoted(chart[0].option)} + ' = ' + datum.x",
    )
    if any(each.beside for each in chart):
        spec["usermeta"] = {"key": labels}
    return spec


def loss_card(section: Section) -> Iterator[Card]:
    """Training loss of one of the first tasks, which the reader chooses."""
    lines, begun = [], 0
    for series in section.shown:
        try:
            found = curves.old_losses(series)
        except NoFigureDataError:
            continue
        begun = max(begun, found.begun)
        kept = evenly(len(found.places), MOST_EPOCHS)
        for task, losses in enumerate(found.curves):
            # A logarithmic axis has no place for a loss of zero.
            points = [(round(found.places[i], 3), v) for i in kept if (v := losses[i])]
            x, y = [x for x, _ in points], [significant(v) for _, v in points]
            if points:
                values: dict[str, list[float | None]] = {"mean": y, "std": [None] * len(y)}
                lines.append(line(series.marked, x, values) | {"task": f"task {task + 1}"})
    if not lines:
        return
    names = sorted({str(each["task"]) for each in lines}, key=lambda name: int(name.split()[1]))
    spec = line_chart(
        lines,
        styles_of(section),
        x=_open_task_axis(begun),
        y=_axis("training loss", log=True),
        text="format(datum.mean, '.3~g')",
        heading=(
            "'task ' + ceil(datum.x) + ', ' + format(datum.x - ceil(datum.x) + 1, '.0%')"
            " + ' of its epochs'"
        ),
        params=[choice(names)],
        only="datum.task == choice",
    )
    yield Card("losses", "Training loss of old tasks", spec)


def _accuracies(section: Section, lines: list[Any], label: str, **more: Any) -> dict[str, Any]:
    return line_chart(
        lines,
        styles_of(section),
        x=_task_axis(section.tasks, "after task"),
        y=_axis(label),
        text=_value(" %"),
        heading="'after task ' + datum.x",
        within=(0, 100),
        **more,
    )


def _value(unit: str) -> str:
    """Vega expression: mean, deviation if there is one, and unit."""
    deviation = "(datum.std == null ? '' : ' ± ' + format(datum.std, '.2f'))"
    return f"format(datum.mean, '.2f') + {deviation} + '{unit}'"


def _quoted(text: str) -> str:
    """Text as a literal in a Vega expression."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _axis(label: str, *, zero: bool = False, log: bool = False) -> alt.Y:
    scale = alt.Scale(type="log", nice=False, padding=8) if log else alt.Scale(zero=zero)
    axis = alt.Axis(format="~g", tickCount=5) if log else alt.Axis(tickCount=5)
    return alt.Y("mean:Q", title=label, scale=scale, axis=axis)


def _task_axis(tasks: int, label: str) -> alt.X:
    """Tasks from 1, at most a dozen of them numbered."""
    step = math.ceil(tasks / 12)
    domain = [0.8 if tasks > 1 else 0.5, tasks + 0.2]
    return alt.X(
        "x:Q",
        title=label,
        scale=alt.Scale(domain=domain, nice=False, zero=False),
        axis=alt.Axis(values=list(range(1, tasks + 1, step)), format="d"),
    )


def _open_task_axis(tasks: int) -> alt.X:
    """Tasks as stretches of the axis, numbered in their middle."""
    step = math.ceil(tasks / 12)
    return alt.X(
        "x:Q",
        title="task being learned",
        scale=alt.Scale(domain=[0, tasks], nice=False),
        axis=alt.Axis(
            values=[t + 0.5 for t in range(0, tasks, step)],
            labelExpr="format(datum.value + 0.5, 'd')",
            ticks=False,
        ),
    )
