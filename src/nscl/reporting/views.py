"""The numbers behind each picture, computed once for paper figures and for the page alike.

A view that has no data raises MissingDataError with the reason that the report then gives.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nscl.metrics import Summary, summary
from nscl.reporting.errors import MissingDataError
from nscl.reporting.gather import Run
from nscl.reporting.series import Section, Series, differing, short

Curve = list[Summary]


def mean_matrix(series: Series) -> list[list[float]]:
    """Accuracy matrix, lower triangle, mean over seeds."""
    matrices = [run.accuracy.rows for run in series.shown]
    return [
        [summary(float(rows[i][j] or 0.0) for rows in matrices).mean for j in range(i + 1)]
        for i in range(series.tasks)
    ]


def acc_curve(series: Series) -> Curve:
    """ACC over the tasks so far, after each task."""
    return [summary(run.accuracy.acc_after(i) for run in series.shown) for i in range(series.tasks)]


def task_curve(series: Series, task: int) -> Curve:
    """Accuracy on one task after each task from its own on."""
    curves = [run.accuracy.curve(task) for run in series.shown]
    return [summary(values) for values in zip(*curves, strict=False)]


def step_times(series: Series) -> list[Summary]:
    """Milliseconds per step in each task, epochs' bookkeeping included.

    Where a task has several epochs the first does not count: it holds the task's preparation.
    """
    found = [times for run in series.shown if (times := _run_step_times(run))]
    if not found:
        raise MissingDataError(f"{series.label}: no epochs are on record (metrics.jsonl)")
    return [summary(values) for values in zip(*found, strict=False)]


def _run_step_times(run: Run) -> list[float]:
    tasks: dict[int, list[Mapping[str, Any]]] = {}
    for record in run.epochs:
        tasks.setdefault(record["task"], []).append(record)
    times, before = [], 0
    for task in sorted(tasks):
        epochs = tasks[task]
        first, last = epochs[0], epochs[-1]
        seconds, steps = last["seconds"], last["steps"] - before
        if last["steps"] > first["steps"]:
            seconds, steps = seconds - first["seconds"], last["steps"] - first["steps"]
        if steps <= 0:
            break
        times.append(1000.0 * seconds / steps)
        before = last["steps"]
    return times


@dataclass(frozen=True)
class OldLosses:
    """Training loss of the first tasks after every epoch.

    ``places`` are on an axis of tasks: 2.5 is the middle of the third. Methods that need more
    epochs than others then stand beside them.
    """

    places: list[float]
    curves: list[list[float | None]]  # per old task, one value per epoch, None before its own


def old_losses(series: Series) -> OldLosses:
    """Mean over seeds of the losses logged with ``track_old_losses``."""
    tracked = [r.epochs for r in series.shown if r.epochs and "old_losses" in r.epochs[0]]
    if not tracked:
        raise MissingDataError(
            f"{series.label}: losses of old tasks are not on record; "
            "run with --track-old-losses 3 to have them"
        )
    length = min(map(len, tracked))
    epochs = [[records[e] for records in tracked] for e in range(length)]
    most = max(len(epoch[0]["old_losses"]) for epoch in epochs)
    curves = [[_loss(epoch, j) for epoch in epochs] for j in range(most)]
    return OldLosses(_places([int(epoch[0]["task"]) for epoch in epochs]), curves)


def _places(tasks: list[int]) -> list[float]:
    seen: dict[int, int] = {}
    places = []
    for task in tasks:
        seen[task] = seen.get(task, 0) + 1
        places.append(task + seen[task] / tasks.count(task))
    return places


def _loss(epoch: list[Mapping[str, Any]], task: int) -> float | None:
    values = [r["old_losses"][task] for r in epoch if task < len(r["old_losses"])]
    return summary(values).mean if values else None


@dataclass(frozen=True)
class Sweep:
    """ACC and BWT of one method against one numeric option."""

    method: str
    option: str
    values: list[float]
    series: list[Series]

    @property
    def logarithmic(self) -> bool:
        """Whether the values are spread over more than a factor of 20."""
        return min(self.values) > 0 and max(self.values) / min(self.values) > 20


def sweeps(section: Section) -> list[Sweep]:
    """Every method of which several finished series differ in exactly one numeric option."""
    found = []
    for method in dict.fromkeys(series.method for series in section.series):
        siblings = [s for s in section.series if s.method == method and s.finished]
        names = differing([dict(s.settings) for s in siblings]) if len(siblings) > 1 else []
        if len(names) == 1 and all(_number(s.settings.get(names[0])) for s in siblings):
            siblings.sort(key=lambda s: float(s.settings[names[0]]))
            values = [float(s.settings[names[0]]) for s in siblings]
            found.append(Sweep(method, short(names[0]), values, siblings))
    if not found:
        raise MissingDataError(
            "no method was run with several values of one numeric option; for example "
            "run with --method.a 10, 100 and 1000"
        )
    return found


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
