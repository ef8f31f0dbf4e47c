"""Order, locked and damaged runs, a second Ctrl-C, with an engine that needs no processes."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from nscl.engines.display.board import Board
from nscl.engines.execute import PlanOutcome, execute
from nscl.engines.job import Ending, Job
from nscl.engines.summary import summarise
from nscl.training.process.interrupt import InterruptedRunError
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


class Locking(Instant):
    """Ends a run as its own process would: locked as long as another has the folder's lock."""

    def poll(self) -> list[Ending]:
        over, self.open = self.open, []
        return [Ending(m, "locked" if m.directory.lock_path.exists() else "done") for m in over]


def lock(made: Job) -> None:
    made.directory.path.mkdir(parents=True)
    made.directory.lock_path.touch()


def test_a_run_of_another_process_comes_last_and_its_result_counts(tmp_path: Path) -> None:
    jobs = [job(tmp_path, seed=s) for s in range(5)]
    for made in jobs[:2]:
        lock(made)

    def other() -> None:
        time.sleep(0.5)
        finish(jobs[0], [[90.0]], 1.0)
        jobs[1].directory.lock_path.unlink()  # and this one was stopped

    engine, process = Locking(), threading.Thread(target=other)
    process.start()
    outcome = execute(jobs, engine, Board())
    process.join()
    assert outcome.exit_code == 0
    assert len(outcome.endings) == 5
    assert engine.started == [*jobs, jobs[1]]  # no attempt while the lock's file was there


def test_one_interrupt_ends_the_waiting_for_another_process(tmp_path: Path) -> None:
    made = job(tmp_path)
    lock(made)
    killer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    killer.start()
    outcome = execute([made], Locking(), Board())
    assert outcome.exit_code == 130
    assert [ending.state for ending in outcome.endings] == ["stopped"]


def test_a_result_that_cannot_be_read_is_a_trouble_of_its_own(tmp_path: Path) -> None:
    jobs = [job(tmp_path, seed=s) for s in range(3)]
    for made in jobs[:2]:
        finish(made, [[90.0]], 1.0)
    jobs[0].directory.result_path.write_text("{")
    board = Board()
    outcome = execute(jobs, Instant(), board)
    (trouble,) = outcome.troubles
    assert (trouble.job, trouble.state, outcome.exit_code) == (jobs[0], "failed", 2)
    assert trouble.error.endswith("; move its folder away to run it again")
    assert (board.count("failed"), board.count("done")) == (1, 2)
    (row,) = summarise(jobs)
    assert row.seeds == (1,)


def test_exit_codes(tmp_path: Path) -> None:
    made = job(tmp_path)
    done, failed = Ending(made, "done"), Ending(made, "failed", "x")
    assert PlanOutcome((done,)).exit_code == 0
    assert PlanOutcome((done, failed)).exit_code == 2
    assert PlanOutcome((done, failed), signal=2).exit_code == 130
