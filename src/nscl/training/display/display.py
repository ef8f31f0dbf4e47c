"""What a person sees while a run goes on: a live view, plain lines, or JSON for programs."""

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from nscl.data.tasks import TaskStream
from nscl.methods.base import Phase
from nscl.results import Result
from nscl.training.checkpoint import Place
from nscl.training.config.schema import RunConfig
from nscl.training.display.notes import notes
from nscl.training.display.tally import Tally


class Display(Protocol):
    """Called at every event of a run; may show it or not.

    The ``return`` of each method says that subclasses need not have it.
    """

    def start(self, config: RunConfig, stream: TaskStream, place: Place, folder: Path) -> None:
        """A run begins or resumes."""
        return

    def step(self, place: Place, phase: Phase, epochs: int, tally: Tally, batches: int) -> None:
        """A step was made."""
        return

    def epoch(self, record: dict[str, Any]) -> None:
        """An epoch is over."""
        return

    def task(self, record: dict[str, Any]) -> None:
        """A task is over."""
        return

    def finish(self, result: Result) -> None:
        """The result is written."""
        return

    def stop(self) -> None:
        """Whatever happened: give the terminal back."""
        return


class Quiet(Display):
    """Shows nothing."""


class Json(Quiet):
    """One JSON object per line on standard output, for programs."""

    def start(self, config: RunConfig, stream: TaskStream, place: Place, folder: Path) -> None:
        """Print where the run is."""
        self._print({"kind": "start", "run": str(folder), "task": place.task, "tasks": len(stream)})

    def epoch(self, record: dict[str, Any]) -> None:
        """Pass the record on."""
        self._print(record)

    def task(self, record: dict[str, Any]) -> None:
        """Pass the record on."""
        self._print(record)

    def finish(self, result: Result) -> None:
        """Pass the result on."""
        self._print({"kind": "result", **result.to_dict()})

    def _print(self, record: dict[str, Any]) -> None:
        print(json.dumps(record), flush=True)


class Lines(Quiet):
    """Plain lines, where standard output is not a terminal."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._done, self._all, self._remarked = 0, 1, False

    def start(self, config: RunConfig, stream: TaskStream, place: Place, folder: Path) -> None:
        """Print what runs, and where."""
        self._all, self._done = len(stream), place.task
        verb = "resuming" if place != Place() else "running"
        self._print(f"{verb} {config.method} on {config.benchmark}, {self._all} tasks, in {folder}")
        for note in notes(config, stream):
            self._print(f"note: {note}")

    def epoch(self, record: dict[str, Any]) -> None:
        """One line per epoch."""
        extra = "".join(
            f"  {name.removeprefix('method/')} {value:.3g}"
            for name, value in record.items()
            if name.startswith("method/")
        )
        self._print(
            f"task {record['task'] + 1}/{self._all}  {record['phase']}  epoch "
            f"{record['epoch'] + 1}  loss {record['loss']:.4f}  accuracy "
            f"{record['accuracy']:.1f} %{extra}"
        )

    def task(self, record: dict[str, Any]) -> None:
        """The row of the accuracy matrix."""
        row = "  ".join(f"{value:.1f}" for value in record["accuracies"])
        self._print(
            f"after task {record['task'] + 1}: {row}   ACC {record['acc']:.2f}  "
            f"BWT {record['bwt']:+z.2f}  ({record['seconds']:.1f} s)"
        )
        if record.get("remarks") and not self._remarked:  # once; the result has them all
            self._remarked = True
            self._remarks(record["remarks"])

    def finish(self, result: Result) -> None:
        """The figures."""
        self._print(
            f"ACC {result.acc:.2f} %  BWT {result.bwt:+z.2f}  forgetting {result.forgetting:.2f}  "
            f"{result.seconds:.1f} s"
        )
        self._remarks(result.remarks)

    def _remarks(self, remarks: Iterable[str]) -> None:
        for remark in remarks:
            self._print(f"remark: {remark}")

    def _print(self, line: str) -> None:
        print(line, flush=True)


def choose_display(*, quiet: bool, as_json: bool) -> Display:
    """A live view on a terminal, plain lines elsewhere."""
    if as_json:
        return Json()
    if quiet:
        return Quiet()
    if sys.stdout.isatty():
        from nscl.training.display.live import Live

        return Live()
    return Lines()
