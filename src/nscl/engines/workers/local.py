"""Runs as processes of this machine: side by side, threads divided, none left behind.

Each child is a process group of its own, so that Ctrl-C in the terminal reaches only the parent,
which then asks every child once to finish its step and save.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nscl.engines.job import Ending, EndState, Job
from nscl.engines.workers.worker import LOCKED
from nscl.results.writing import cannot_write, make_folder
from nscl.training.config.schema import RunConfig

STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGINT, -signal.SIGTERM)
POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
PATIENCE = 10.0  # seconds that a child has to leave before it is killed


def available_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def with_thread_share(
    config: RunConfig, *, jobs: int | None, threads: int | None = None
) -> RunConfig:
    """The configuration with its share of the cores, or with the user's number of threads.

    ``jobs`` is None on a cluster, which has other cores than this machine: one thread.
    """
    share = 1 if jobs is None else max(1, available_cores() // jobs)
    return config.model_copy(update={"threads": threads or min(share, config.threads or share)})


@dataclass
class _Child:
    job: Job
    process: subprocess.Popen[bytes]
    offset: int  # where this attempt begins in the log


class Local:
    """At most ``jobs`` child processes at a time.

    >>> engine = Local(jobs=2)
    >>> engine.slots, engine.busy
    (2, 0)
    """

    def __init__(self, *, jobs: int = 1) -> None:
        self._slots = jobs
        self._children: list[_Child] = []
        self._begun: list[Job] = []

    @property
    def slots(self) -> int:
        """How many runs may be under way at once."""
        return self._slots

    @property
    def busy(self) -> int:
        """How many are under way."""
        return len(self._children)

    def start(self, job: Job) -> None:
        """Begin or continue a run in a process of its own."""
        make_folder(job.log.parent)
        try:
            with job.log.open("ab") as log:
                offset = log.seek(0, os.SEEK_END)
                process = subprocess.Popen(
                    [sys.executable, "-m", "nscl.engines.workers.worker"],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=_environment(job),
                    process_group=0,
                )
        except OSError as error:
            raise cannot_write(job.log, error) from error
        self._children.append(_Child(job, process, offset))
        self._begun.append(job)
        _hand_over(process, job)

    def begun(self) -> list[Job]:
        """Runs started since the last call: here none has to wait."""
        begun, self._begun = self._begun, []
        return begun

    def poll(self) -> list[Ending]:
        """Runs that ended since the last call."""
        over = [child for child in self._children if child.process.poll() is not None]
        self._children = [child for child in self._children if child not in over]
        return [_ending(child) for child in over]

    def stop(self) -> None:
        """Ask all children to finish their step and save."""
        for child in self._children:
            child.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Make the children that are left leave at once; their last checkpoint is complete."""
        self.stop()
        deadline = time.monotonic() + PATIENCE
        for child in self._children:
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
        self._children = []


def _environment(job: Job) -> dict[str, str]:
    # torch reads the configuration; this is for the thread pools of numpy and scipy.
    threads = str(job.config.threads or available_cores())
    return {**os.environ, **dict.fromkeys(POOLS, threads), "PYTHONUNBUFFERED": "1"}


def _hand_over(process: "subprocess.Popen[bytes]", job: Job) -> None:
    if process.stdin is not None:
        with suppress(BrokenPipeError):  # the next poll reports a child that is dead already
            process.stdin.write(job.config.model_dump_json().encode() + b"\n")
            process.stdin.flush()  # it stays open: its end shows the child that we are gone


def _ending(child: _Child) -> Ending:
    code = child.process.returncode
    if child.process.stdin is not None:
        with suppress(BrokenPipeError):
            child.process.stdin.close()
    if code == 0 and child.job.directory.is_finished:
        return Ending(child.job, "done")
    if code in STOPPED:
        return Ending(child.job, "stopped", "stopped by a signal; the same command continues it")
    if code < 0:
        name = signal.Signals(-code).name
        reason = " (out of memory?)" if -code == signal.SIGKILL else ""
        return Ending(
            child.job, "killed", f"killed by {name}{reason}; the same command continues it"
        )
    state: EndState = "locked" if code == LOCKED else "failed"
    return Ending(child.job, state, last_error(child.job.log, offset=child.offset))


def last_error(log: Path, *, offset: int = 0) -> str:
    """The line of its log in which a process gave its error, or its last line."""
    text = log.read_bytes()[offset:].decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("nscl: ") for line in lines if line.startswith("nscl: ")]
    return (errors or lines or ["it ended without a message"])[-1]
