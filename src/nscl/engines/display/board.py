"""What is shown while many runs go on: nothing, plain lines or JSON.

The live table on a terminal is in ``live_board``.
"""

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from nscl.engines.display.progress import Forecast, Watch
from nscl.engines.display.text import count_runs, format_seconds
from nscl.engines.job import Ending, Job

REMINDER = 60.0  # seconds between two lines while nothing else happens
NO_LIMIT = 1_000_000  # slots of an engine that has a queue of its own


class Board:
    """Keeps which runs wait, go on and have ended; shows nothing."""

    def __init__(self, *, slots: int = 1) -> None:
        self.slots = slots
        self.runs: list[Job] = []
        self.states: dict[str, str] = {}
        self.earlier: set[str] = set()
        self.begun: set[str] = set()
        self.elsewhere: set[str] = set()  # worked on by another process
        self.at_once = 1  # runs under way when the last one began
        self.watch = Watch()
        self.forecast = Forecast(self.watch)

    def start(self, runs: Sequence[Job]) -> None:
        """Take up the plan."""
        self.runs = list(runs)
        self.earlier = {job.name for job in runs if job.is_done}
        # Checked now: when a run is reported to have begun, it may have written a checkpoint.
        self.begun = {job.name for job in runs if job.is_begun} - self.earlier
        self.states = {
            job.name: "done" if job.name in self.earlier else "waiting" for job in self.runs
        }

    def begin(self, job: Job) -> None:
        """A run begins or continues."""
        self.states[job.name] = "running"
        self.at_once = self.count("running")

    def end(self, ending: Ending) -> None:
        """A run has ended."""
        self.states[ending.job.name] = ending.state

    def put_back(self, ending: Ending) -> None:
        """A run waits because another process works on it; shown once, not at every attempt."""
        job = ending.job
        self.states[job.name] = "waiting"
        if job.name not in self.elsewhere:
            self.elsewhere.add(job.name)
            self.say(f"{job.title} is waiting for another process: {ending.error}")

    def say(self, text: str) -> None:
        """Show a message to the user."""

    def tick(self) -> None:
        """Called several times a second."""

    def stop(self) -> None:
        """Whatever happened: give the terminal back."""

    def count(self, state: str) -> int:
        """How many runs are in a state."""
        return sum(value == state for value in self.states.values())

    def seconds_left(self) -> float | None:
        """Seconds until all are done, roughly."""
        still = [job for job in self.runs if self.states[job.name] in ("waiting", "running")]
        # Not all that were handed over: a cluster runs as many of them as fit.
        slots = min(self.slots, self.at_once)
        return self.forecast.all_left(still, self.runs, slots=slots) if still else None

    @property
    def at_a_time(self) -> int | None:
        """How many may go on at once; None: as many as fit on the cluster."""
        return min(self.slots, len(self.runs)) if self.slots < NO_LIMIT else None

    def opening(self) -> str:
        """The plan in one line."""
        fresh = len(self.runs) - len(self.earlier) - len(self.begun)
        pace = f"{self.at_a_time} at a time" if self.at_a_time is not None else "as there is room"
        return (
            f"{count_runs(len(self.runs))}: {len(self.earlier)} finished, {len(self.begun)} to be "
            f"continued, {fresh} new; {pace}"
        )


class LinesBoard(Board):
    """Plain lines, where standard output is not a terminal."""

    def __init__(self, *, slots: int = 1) -> None:
        super().__init__(slots=slots)
        self._last_line = time.monotonic()

    def start(self, runs: Sequence[Job]) -> None:
        """Say what will be done."""
        super().start(runs)
        if runs:
            self.say(self.opening())

    def begin(self, job: Job) -> None:
        """One line per start."""
        super().begin(job)
        verb = "continuing" if job.name in self.begun else "starting"
        self.say(f"{verb} {job.title}: {job.name}")

    def end(self, ending: Ending) -> None:
        """One line per end."""
        super().end(ending)
        if ending.state != "done":
            self.say(f"{ending.state} {ending.job.title}: {ending.error}")
            return
        result = ending.job.directory.result()
        left = format_seconds(self.seconds_left())
        self.say(
            f"done {ending.job.title}: ACC {result.acc:.2f} %  BWT {result.bwt:+z.2f}  "
            f"{format_seconds(result.seconds)}; {self.count('done')} of {len(self.runs)}"
            + (f", about {left} left" if left else "")
        )

    def say(self, text: str) -> None:
        """Print it."""
        print(text, flush=True)
        self._last_line = time.monotonic()

    def tick(self) -> None:
        """Once a minute, show that runs go on."""
        if time.monotonic() - self._last_line > REMINDER:
            going = [job for job in self.runs if self.states[job.name] == "running"]
            shares = ", ".join(f"{job.title} {self.watch(job).share:.0%}" for job in going)
            waiting = f"{self.count('waiting')} waiting; " if self.count("waiting") else ""
            left = f"about {format_seconds(self.seconds_left()) or '?'} left"
            self.say(f"running: {shares or 'none'}; {waiting}{left}")


class JsonBoard(Board):
    """One JSON object per line on standard output, for programs."""

    def start(self, runs: Sequence[Job]) -> None:
        """The plan."""
        super().start(runs)
        plan = [
            {"run": job.name, "label": job.label, "seed": job.config.seed,
             "state": self.states[job.name]}
            for job in self.runs
        ]  # fmt: skip
        self._print("plan", runs=plan, at_a_time=self.at_a_time)

    def begin(self, job: Job) -> None:
        """A run begins or continues."""
        super().begin(job)
        self._print("begin", run=job.name, continued=job.name in self.begun)

    def end(self, ending: Ending) -> None:
        """A run has ended, with its figures if it is done."""
        super().end(ending)
        record: dict[str, Any] = {"run": ending.job.name, "state": ending.state}
        if ending.state == "done":
            result = ending.job.directory.result()
            record |= {"acc": result.acc, "bwt": result.bwt, "seconds": result.seconds}
        else:
            record |= {"error": ending.error, "log": str(ending.job.log)}
        self._print("end", **record)

    def say(self, text: str) -> None:
        """Pass it on."""
        self._print("note", text=text)

    def _print(self, kind: str, **record: Any) -> None:
        print(json.dumps({"kind": kind, **record}), flush=True)


def choose_board(*, slots: int, quiet: bool, as_json: bool) -> Board:
    """A live table on a terminal, plain lines elsewhere."""
    if as_json:
        return JsonBoard(slots=slots)
    if quiet:
        return Board(slots=slots)
    if sys.stdout.isatty():
        from nscl.engines.display.live_board import LiveBoard

        return LiveBoard(slots=slots)
    return LinesBoard(slots=slots)
