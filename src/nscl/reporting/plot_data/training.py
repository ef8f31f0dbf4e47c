"""Training loss of each task while it is learned, from the records of epochs; mean over seeds."""

import math
from itertools import groupby
from operator import itemgetter

from nscl.metrics import summary
from nscl.reporting.errors import NoFigureDataError
from nscl.reporting.gather import Run
from nscl.reporting.plot_data.curves import Curve
from nscl.reporting.series import Series

Losses = list[float]


def training_losses(series: Series) -> dict[int, Curve]:
    """For each task the loss of its epochs, all phases of a method one after the other.

    A seed that has done fewer epochs than others shortens the curve: a mean is always over all.
    """
    runs = [found for run in series.shown if (found := run_losses(run))]
    if not runs:
        raise NoFigureDataError("no epochs are on record (metrics.jsonl)")
    tasks = sorted(set(runs[0]).intersection(*runs[1:]))
    return {
        task: [summary(values) for values in zip(*(run[task] for run in runs), strict=False)]
        for task in tasks
    }


def run_losses(run: Run) -> dict[int, Losses]:
    """The losses of one run's epochs by task; a task ends where its loss is no number."""
    found: dict[int, Losses] = {}
    for task, records in groupby(run.epochs, key=itemgetter("task")):
        for record in records:
            loss = record.get("loss")
            if not isinstance(loss, int | float) or not math.isfinite(loss):
                break
            found.setdefault(int(task), []).append(float(loss))
    return found
