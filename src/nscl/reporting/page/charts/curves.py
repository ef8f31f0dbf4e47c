"""Cards of curves: ACC and accuracy after each task, time per step, sweeps."""

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from nscl.reporting.errors import NoFigureDataError
from nscl.reporting.page.charts.lines import (
    LIMIT,
    line,
    line_chart,
    of_series,
    task_axis,
    value_axis,
    value_text,
)
from nscl.reporting.page.charts.theme import (
    Card,
    Styles,
    choice,
    means,
)
from nscl.reporting.plot_data import curves, sweeps
from nscl.reporting.plot_styles import first_styles
from nscl.reporting.series import Section
from nscl.reporting.tables.timing import how_rough


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
    spec = of_series(
        section,
        lines,
        x=task_axis(max(len(each["x"]) for each in lines), "task"),
        y=value_axis("ms", zero=True),
        text=value_text(" ms"),
        heading="'task ' + datum.x",
        within=(0, LIMIT),
    )
    yield Card("times", f"Time per step{how_rough(section.shown)}", spec)


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
        y=value_axis(label),
        text=value_text(""),
        heading=f"{_quoted(chart[0].option)} + ' = ' + datum.x",
    )
    if any(each.beside for each in chart):
        spec["usermeta"] = {"key": labels}
    return spec


def _accuracies(section: Section, lines: list[Any], label: str, **more: Any) -> dict[str, Any]:
    return of_series(
        section,
        lines,
        x=task_axis(section.tasks, "after task"),
        y=value_axis(label),
        text=value_text(" %"),
        heading="'after task ' + datum.x",
        within=(0, 100),
        **more,
    )


def _quoted(text: str) -> str:
    """Text as a literal in a Vega expression."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
