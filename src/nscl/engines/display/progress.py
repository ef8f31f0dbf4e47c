"""Progress and remaining time of runs, read from the ``metrics.jsonl`` that they write anyway.

This works for all engines, and for a run that another process continued yesterday.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from nscl.engines.job import Job
from nscl.results import FormatError, read_metrics
from nscl.training.config.schema import Optim


@dataclass(frozen=True)
class RunProgress:
    """Share of the run that is done, seconds spent on it, figures after the last complete task."""

    share: float = 0.0
    seconds: float = 0.0
    acc: float | None = None
    bwt: float | None = None
    tasks: int = 0

    @property
    def total_seconds(self) -> float | None:
        """Estimated seconds of the complete run; None before its first epoch."""
        return self.seconds / self.share if self.share > 0 else None


class Watch:
    """Reads a run's progress; a file that has not grown is not read again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, RunProgress]] = {}

    def __call__(self, job: Job) -> RunProgress:
        """Where the run stands now."""
        path = job.directory.metrics_path
        size = path.stat().st_size if path.exists() else 0
        known = self._known.get(job.name)
        if known is not None and known[0] == size:
            return known[1]
        found = _read(job) if size else RunProgress()
        self._known[job.name] = (size, found)
        return found


def _read(job: Job) -> RunProgress:
    """A damaged log counts as no progress: it must not end a plan that only looks at it."""
    try:
        return progress_of(job, read_metrics(job.directory.metrics_path))
    except FormatError:
        return RunProgress()


def progress_of(job: Job, records: Iterable[dict[str, Any]]) -> RunProgress:
    """Progress from the records of ``metrics.jsonl``."""
    tasks = [[]]  # type: list[list[dict[str, Any]]]
    ends: list[dict[str, Any]] = []
    for record in records:
        if record["kind"] == "task":
            ends.append(record)
            tasks.append([])
        elif record["kind"] == "epoch":
            tasks[-1].append(record)
    optim, current = job.config.optim, tasks[-1]
    within = min(len(current) / _usual_epochs(optim, tasks), 0.99)
    spent = sum(end["seconds"] for end in ends) + (current[-1]["seconds"] if current else 0.0)
    last = ends[-1] if ends else {}
    done = optim.epochs_before(len(ends) + within) / optim.epochs_before(job.tasks)
    return RunProgress(min(1.0, done), spent, last.get("acc"), last.get("bwt"), len(ends))


def _usual_epochs(optim: Optim, tasks: list[list[dict[str, Any]]]) -> int:
    """Epochs of the current task: with warm-ups or further phases as many as the last one had."""
    configured = optim.epochs_of(len(tasks) - 1)
    is_alike = len(tasks) > 2 or (len(tasks) == 2 and optim.first_epochs is None)
    return max(len(tasks[-2]), configured) if is_alike else configured


class Forecast:
    """Seconds left, for one run and for all."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def left(self, job: Job, runs: Iterable[Job]) -> float | None:
        """Seconds left of one run: as a finished run of its label, else by its own pace."""
        now = self._watch(job)
        like = [p.seconds for p in self._of_label(job.label, runs) if p.share >= 1.0]
        total = fmean(like) if like else now.total_seconds
        return None if total is None else max(0.0, total - now.seconds)

    def all_left(self, open_runs: Iterable[Job], runs: list[Job], *, slots: int) -> float | None:
        """Seconds until the last of the open runs ends, spread over the slots."""
        open_list = list(open_runs)
        known = [left for job in open_list if (left := self.left(job, runs)) is not None]
        paces = [p for job in runs if (p := self._watch(job).total_seconds) is not None]
        if not paces:
            return None
        guesses = (len(open_list) - len(known)) * fmean(paces)
        return (sum(known) + guesses) / max(1, min(slots, len(open_list)))

    def _of_label(self, label: str, runs: Iterable[Job]) -> list[RunProgress]:
        return [self._watch(job) for job in runs if job.label == label]
