"""Accuracy, time per step and losses of old tasks over the tasks of a run, mean over seeds.

A function without data raises NoFigureDataError with the reason that the report then gives.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from statistics import median
from typing import Any, NamedTuple

from nscl.metrics import Summary, summary
from nscl.reporting.errors import NoFigureDataError
from nscl.reporting.gather import Run
from nscl.reporting.series import Series

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

    Where a task has several epochs the first does not count: it holds the task's preparation. So
    a task that was just begun has no time yet.
    """
    found = [times for run in series.shown if (times := _run_step_times(run))]
    if not found:
        raise NoFigureDataError("no epochs are on record (metrics.jsonl)")
    return [summary(values) for values in zip(*found, strict=False)]


def _run_step_times(run: Run) -> list[float]:
    times: list[float] = []
    before = 0
    for task, records in groupby(run.epochs, key=itemgetter("task")):
        epochs = list(_epochs_alone(records, before))
        if not epochs or (len(epochs) == 1 and task >= run.accuracy.tasks and times):
            break
        times.append(1000.0 * _usual_step(epochs[1:] or epochs))
        before += sum(epoch.steps for epoch in epochs)
    return times


class _Epoch(NamedTuple):
    phase: str
    seconds: float
    steps: int


def _epochs_alone(records: Iterable[Mapping[str, Any]], steps: int) -> Iterator[_Epoch]:
    """Each epoch's own share of what the log counts: seconds of its task, steps of the run."""
    seconds = 0.0
    for record in records:
        if record["steps"] > steps:
            yield _Epoch(record["phase"], record["seconds"] - seconds, record["steps"] - steps)
        seconds, steps = record["seconds"], record["steps"]


def _usual_step(epochs: Iterable[_Epoch]) -> float:
    """Seconds per step by the median epoch of each phase: a machine may pause during one."""
    phases: dict[str, list[_Epoch]] = {}
    for epoch in epochs:
        phases.setdefault(epoch.phase, []).append(epoch)
    seconds = steps = 0.0
    for alike in phases.values():
        taken = sum(epoch.steps for epoch in alike)
        seconds += taken * median(epoch.seconds / epoch.steps for epoch in alike)
        steps += taken
    return seconds / steps


@dataclass(frozen=True)
class OldLosses:
    """Training loss of the first tasks after every epoch.

    ``places`` are on an axis of tasks: 2.5 is the middle of the third. Methods that need more
    epochs than others then stand beside them.
    """

    places: list[float]
    curves: list[list[float | None]]  # per old task, one value per epoch, None before its own

    @property
    def begun(self) -> int:
        """Tasks on the axis: one more than are finished while a task is being learned."""
        return math.ceil(max(self.places) - 1e-9)


def old_losses(series: Series) -> OldLosses:
    """Mean over seeds of the losses logged with ``track_old_losses``."""
    tracked = [r.epochs for r in series.shown if r.epochs and _has_old_losses(r)]
    if not tracked:
        raise NoFigureDataError(
            "losses of old tasks are not on record; run with --track-old-losses 3 to have them"
        )
    longest, length = max(tracked, key=len), min(map(len, tracked))
    epochs = [[records[e] for records in tracked] for e in range(length)]
    most = max(len(epoch[0]["old_losses"]) for epoch in epochs)
    curves = [[_loss(epoch, j) for epoch in epochs] for j in range(most)]
    places = _places([record["task"] for record in longest], finished=series.tasks)
    return OldLosses(places[:length], curves)


def _has_old_losses(run: Run) -> bool:
    return all("old_losses" in record for record in run.epochs)


def _places(tasks: list[int], *, finished: int) -> list[float]:
    """Where each epoch ends; a task that is still open is as long as the longest before it."""
    counts = Counter(tasks)
    longest = max(counts.values())
    seen: Counter[int] = Counter()
    places = []
    for task in tasks:
        seen[task] += 1
        places.append(task + seen[task] / (counts[task] if task < finished else longest))
    return places


def _loss(epoch: list[Mapping[str, Any]], task: int) -> float | None:
    values = [r["old_losses"][task] for r in epoch if task < len(r["old_losses"])]
    return summary(values).mean if values else None
