"""Cards of losses: of each task while it is learned, and of old tasks while later ones are."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from nscl.metrics import Summary
from nscl.reporting.errors import NoFigureDataError
from nscl.reporting.page.charts.lines import line, of_series, open_task_axis, task_axis, value_axis
from nscl.reporting.page.charts.theme import Card, choice, significant
from nscl.reporting.plot_data.curves import OldLosses, old_losses
from nscl.reporting.plot_data.spectral import evenly
from nscl.reporting.plot_data.training import training_losses
from nscl.reporting.series import Section, Series

MOST_EPOCHS = 300  # points of a curve: 50 runs must fit into 5 MB
MOST_OF_A_TASK = 40

T = TypeVar("T")


def training_card(section: Section) -> Iterator[Card]:
    """Training loss of one task, which the reader chooses, epoch by epoch."""
    lines = [
        _one_task(series, task, [(i + 1, points[i].mean) for i in _thinned(points)])
        for series, found in _available(section, training_losses)
        for task, points in found.items()
        if any(point.mean > 0 for point in points)
    ]
    if lines:
        axis = task_axis(max(each["x"][-1] for each in lines), "epoch of the task")
        spec = _choose_a_task(section, lines, axis, heading="'epoch ' + datum.x")
        yield Card("training", "Training loss while a task is learned", spec)


def loss_card(section: Section) -> Iterator[Card]:
    """Training loss of one of the first tasks, which the reader chooses."""
    found = _available(section, old_losses)
    lines = [
        _one_task(series, task, points)
        for series, losses in found
        for task, points in enumerate(_old_points(losses))
        if points
    ]
    if lines:
        axis = open_task_axis(max(losses.begun for _, losses in found))
        heading = (
            "'task ' + ceil(datum.x) + ', ' + format(datum.x - ceil(datum.x) + 1, '.0%')"
            " + ' of its epochs'"
        )
        spec = _choose_a_task(section, lines, axis, heading=heading)
        yield Card("losses", "Training loss of old tasks", spec)


def _available(section: Section, read: Callable[[Series], T]) -> list[tuple[Series, T]]:
    """What is read of each series; those that have no such data are left out."""
    found = []
    for series in section.shown:
        try:
            found.append((series, read(series)))
        except NoFigureDataError:
            continue
    return found


def _thinned(points: Sequence[Summary]) -> list[int]:
    """Epochs to show; a logarithmic axis has no place for a loss of zero."""
    return [i for i in evenly(len(points), MOST_OF_A_TASK) if points[i].mean > 0]


def _old_points(losses: OldLosses) -> Iterator[list[tuple[float, float]]]:
    kept = evenly(len(losses.places), MOST_EPOCHS)
    for values in losses.curves:
        yield [(round(losses.places[i], 3), value) for i in kept if (value := values[i])]


def _one_task(series: Series, task: int, points: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """The curve of a series for one task."""
    means: list[float | None] = [significant(value) for _, value in points]
    nothing: list[float | None] = [None] * len(means)
    values = {"mean": means, "std": nothing}
    return line(series.marked, [x for x, _ in points], values) | {"task": f"task {task + 1}"}


def _choose_a_task(
    section: Section, lines: Sequence[dict[str, Any]], axis: Any, *, heading: str
) -> dict[str, Any]:
    """A chart of the curves of one task at a time."""
    names = sorted({str(each["task"]) for each in lines}, key=lambda name: int(name.split()[1]))
    return of_series(
        section,
        lines,
        x=axis,
        y=value_axis("training loss", log=True),
        text="format(datum.mean, '.3~g')",
        heading=heading,
        params=[choice(names)],
        only="datum.task == choice",
    )
