"""The order of a plan's runs and a second Ctrl-C, with an engine that needs no processes."""

import os
import signal
from pathlib import Path

import pytest

from nscl.engines.board import Board
from nscl.engines.execute import execute
from nscl.engines.job import Ending, Job
from nscl.training.interrupt import InterruptedRunError
from tests.engines.jobs import finish, job


class Instant:
    """Ends every run at the next look; with ``signals`` it is interrupted so often instead."""

    slots = 2

    def __init__(self, signals: int = 0) -> None:
        self.signals, self.started, self.open = signals, list[Job](), list[Job]()
        self.most, self.stopped, self.closed = 0, 0, 0
        self.new: list[Job] = []

    @property
    def busy(self) -> int:
        return len(self.open)

    def start(self, made: Job) -> None:
        self.started.append(made)
        self.new.append(made)
        self.open.append(made)
        self.most = max(self.most, self.busy)

    def begun(self) -> list[Job]:
        new, self.new = self.new, []
        return new

    def poll(self) -> list[Ending]:
        if self.signals:
            self.signals -= 1
            os.kill(os.getpid(), signal.SIGINT)
            return []
        over, self.open = self.open, []
        return [Ending(made, "stopped" if self.stopped else "done") for made in over]

    def stop(self) -> None:
        self.stopped += 1

    def close(self) -> None:
        self.closed += 1


def test_each_unfinished_run_is_started_once_in_order(tmp_path: Path) -> None:
    jobs = [job(tmp_path, seed=s) for s in range(5)]
    finish(jobs[1], [[90.0]], 1.0)
    engine = Instant()
    outcome = execute([*jobs, jobs[0]], engine, Board())
    assert engine.started == [jobs[0], *jobs[2:]]
    assert (engine.most, engine.closed, outcome.exit_code) == (2, 1, 0)
    assert len(outcome.endings) == 5


def test_one_interrupt_asks_two_leave(tmp_path: Path) -> None:
    jobs = [job(tmp_path, seed=s) for s in range(5)]
    engine = Instant(signals=1)
    outcome = execute(jobs, engine, Board())
    assert (engine.stopped, engine.closed, outcome.exit_code) == (1, 1, 130)
    assert len(engine.started) == 2
    assert [ending.state for ending in outcome.endings] == ["stopped"] * 5
    engine = Instant(signals=2)
    with pytest.raises(InterruptedRunError, match="same command") as problem:
        execute(jobs, engine, Board())
    assert problem.value.exit_code == 130
    assert engine.closed == 1
