"""What a person sees while a run goes on: a live picture, plain lines, or JSON for machines."""

import json
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from nscl.data.tasks import TaskStream
from nscl.methods.base import Phase
from nscl.results import Result
from nscl.training.checkpoint import Place
from nscl.training.config import RunConfig
from nscl.training.tally import Tally


class Display(Protocol):
    """Told what happens; may show it or not."""

    def start(self, config: RunConfig, stream: TaskStream, place: Place, folder: Path) -> None:
        """A run begins or resumes."""

    def step(self, place: Place, phase: Phase, epochs: int, tally: Tally, batches: int) -> None:
        """A step was made."""

    def epoch(self, record: dict[str, Any]) -> None:
        """An epoch is over."""

    def task(self, record: dict[str, Any]) -> None:
        """A task is over."""

    def finish(self, result: Result) -> None:
        """The result is written."""

    def stop(self) -> None:
        """Whatever happened: give the terminal back."""


class Quiet:
    """Shows nothing."""

    def start(self, config: RunConfig, stream: TaskStream, place: Place, folder: Path) -> None:
        """A run begins or resumes."""

    def step(self, place: Place, phase: Phase, epochs: int, tally: Tally, batches: int) -> None:
        """A step was made."""

    def epoch(self, record: dict[str, Any]) -> None:
        """An epoch is over."""

    def task(self, record: dict[str, Any]) -> None:
        """A task is over."""

    def finish(self, result: Result) -> None:
        """The result is written."""

    def stop(self) -> None:
        """Whatever happened: give the terminal back."""


class Json(Quiet):
    """One JSON object per line on standard output, for programs."""

    def start(self, config: RunConfig, stream: TaskStream, place: Place, folder: Path) -> None:
        """Say where the run is."""
        self._say({"kind": "start", "run": str(folder), "task": place.task, "tasks": len(stream)})

    def epoch(self, record: dict[str, Any]) -> None:
        """Pass the record on."""
        self._say(record)

    def task(self, record: dict[str, Any]) -> None:
        """Pass the record on."""
        self._say(record)

    def finish(self, result: Result) -> None:
        """Pass the result on."""
        self._say({"kind": "result", **result.to_dict()})

    def _say(self, record: dict[str, Any]) -> None:
        print(json.dumps(record), flush=True)


class Lines(Quiet):
    """Plain lines, where standard output is no terminal."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._done, self._all = 0, 1

    def start(self, config: RunConfig, stream: TaskStream, place: Place, folder: Path) -> None:
        """Say what runs, and from where."""
        self._all, self._done = len(stream), place.task
        verb = "resuming" if place != Place() else "running"
        self._say(f"{verb} {config.method} on {config.benchmark}, {self._all} tasks, in {folder}")
        if stream.note:
            self._say(f"note: {stream.note}")

    def epoch(self, record: dict[str, Any]) -> None:
        """One line per epoch."""
        extra = "".join(
            f"  {name.removeprefix('method/')} {value:.3g}"
            for name, value in record.items()
            if name.startswith("method/")
        )
        self._say(
            f"task {record['task'] + 1}/{self._all}  {record['phase']}  epoch "
            f"{record['epoch'] + 1}  loss {record['loss']:.4f}  accuracy "
            f"{record['accuracy']:.1f} %{extra}"
        )

    def task(self, record: dict[str, Any]) -> None:
        """The row of the accuracy matrix."""
        row = "  ".join(f"{value:.1f}" for value in record["accuracies"])
        self._say(
            f"after task {record['task'] + 1}: {row}   ACC {record['acc']:.2f}  "
            f"BWT {record['bwt']:+z.2f}  ({record['seconds']:.1f} s)"
        )

    def finish(self, result: Result) -> None:
        """The figures."""
        self._say(
            f"ACC {result.acc:.2f} %  BWT {result.bwt:+z.2f}  forgetting {result.forgetting:.2f}  "
            f"{result.seconds:.1f} s"
        )

    def _say(self, line: str) -> None:
        print(line, flush=True)


def choose_display(*, quiet: bool, as_json: bool) -> Display:
    """A live picture on a terminal, plain lines elsewhere."""
    if as_json:
        return Json()
    if quiet:
        return Quiet()
    if sys.stdout.isatty():
        from nscl.training.live import Live

        return Live()
    return Lines()
