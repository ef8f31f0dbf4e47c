"""Cards of losses: of each task while it is learned, and of old tasks while later ones are."""

from collections.abc import Iterator, Sequence
from typing import Any

from nscl.metrics import Summary
from nscl.reporting.errors import NoFigureDataError
from nscl.reporting.page.charts.lines import line, of_series, open_task_axis, task_axis, value_axis
from nscl.reporting.page.charts.theme import Card, choice, significant
from nscl.reporting.plot_data import curves
from nscl.reporting.plot_data.spectral import evenly
from nscl.reporting.plot_data.training import training_losses
from nscl.reporting.series import Section

MOST_EPOCHS = 300  # points of a curve: 50 runs must fit into 5 MB
MOST_OF_A_TASK = 40
_LOSS = "format(datum.mean, '.3~g')"


def training_card(section: Section) -> Iterator[Card]:
    """Training loss of one task, which the reader chooses, epoch by epoch."""
    lines: list[dict[str, Any]] = []
    for series in section.shown:
        try:
            found = training_losses(series)
        except NoFigureDataError:
            continue
        for task, points in found.items():
            if any(point.mean > 0 for point in points):
                lines.append(_epochs(series.marked, points) | {"task": f"task {task + 1}"})
    if not lines:
        return
    names = sorted({str(each["task"]) for each in lines}, key=lambda name: int(name.split()[1]))
    spec = of_series(
        section,
        lines,
        x=task_axis(max(each["x"][-1] for each in lines), "epoch of the task"),
        y=value_axis("training loss", log=True),
        text=_LOSS,
        heading="'epoch ' + datum.x",
        params=[choice(names)],
        only="datum.task == choice",
    )
    yield Card("training", "Training loss while a task is learned", spec)


def _epochs(label: str, points: Sequence[Summary]) -> dict[str, Any]:
    """A curve over the epochs of a task; a logarithmic axis has no place for a loss of zero."""
    kept = [i for i in evenly(len(points), MOST_OF_A_TASK) if points[i].mean > 0]
    means = [significant(points[i].mean) for i in kept]
    return line(label, [i + 1 for i in kept], {"mean": means, "std": [None] * len(means)})


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
    spec = of_series(
        section,
        lines,
        x=open_task_axis(begun),
        y=value_axis("training loss", log=True),
        text=_LOSS,
        heading=(
            "'task ' + ceil(datum.x) + ', ' + format(datum.x - ceil(datum.x) + 1, '.0%')"
            " + ' of its epochs'"
        ),
        params=[choice(names)],
        only="datum.task == choice",
    )
    yield Card("losses", "Training loss of old tasks", spec)
