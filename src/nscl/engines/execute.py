"""Send the runs of a plan to an engine until all have ended or the user wants to stop.

Finished runs are skipped. Broken runs continue from their own folder. A run that another process
works on waits for that process. There is no other state, so the same command continues the plan
after any kill.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nscl.engines.display.board import Board
from nscl.engines.job import Ending, Job, ended_before
from nscl.engines.workers.run_queue import RunQueue
from nscl.training.process.interrupt import InterruptedRunError, StopSignal

PAUSE = 0.1  # seconds between two looks at the children


class Engine(Protocol):
    """Where runs go."""

    @property
    def slots(self) -> int:
        """How many runs may be handed over at once."""
        ...

    @property
    def busy(self) -> int:
        """How many are handed over and have not ended."""
        ...

    def start(self, job: Job) -> None:
        """Begin or continue a run, or put it into the engine's own queue."""

    def begun(self) -> list[Job]:
        """Runs that really began since the last call."""
        ...

    def poll(self) -> list[Ending]:
        """Runs that ended since the last call."""
        ...

    def stop(self) -> None:
        """Ask all runs to finish their step and save."""

    def close(self) -> None:
        """Leave nothing running behind."""


@dataclass(frozen=True)
class PlanOutcome:
    """How every run of a plan ended; ``signal`` is the one that the user stopped it with."""

    endings: tuple[Ending, ...]
    signal: int | None = None

    @property
    def troubles(self) -> list[Ending]:
        """Runs that have no result."""
        return [ending for ending in self.endings if ending.state != "done"]

    @property
    def exit_code(self) -> int:
        """0: all have a result; 2: some have none; 130 or 143: stopped by a signal."""
        if self.signal is not None:
            return 128 + self.signal
        return 2 if self.troubles else 0


def execute(jobs: Sequence[Job], engine: Engine, board: Board) -> PlanOutcome:
    """Run what is not finished, side by side as far as the engine allows."""
    runs = list({job.name: job for job in jobs}.values())
    finished = {job.name for job in runs if job.is_done}
    queue = RunQueue(job for job in runs if job.name not in finished)
    endings = [ended_before(job) for job in runs if job.name in finished]
    with StopSignal() as signal:
        try:
            board.start(runs)
            for ending in PlanOutcome(tuple(endings)).troubles:
                board.end(ending)
            _drain(queue, engine, board, signal, endings)
        except KeyboardInterrupt:
            raise InterruptedRunError(
                "left at once; the last checkpoints are complete. Continue with the same command",
                signal.exit_code,
            ) from None
        finally:
            engine.close()
            board.stop()
    endings += [Ending(job, "stopped") for job in queue.jobs]
    return PlanOutcome(tuple(endings), signal.received)


def _drain(
    queue: RunQueue, engine: Engine, board: Board, signal: StopSignal, endings: list[Ending]
) -> None:
    asked = False
    while engine.busy or (queue.jobs and not asked):
        # First: a run that another process has just finished must not be started.
        _note(queue.finished_elsewhere(), queue, board, endings)
        while engine.busy < engine.slots and signal.received is None and (job := queue.next()):
            engine.start(job)
        for job in engine.begun():
            board.begin(job)
        if signal.received is not None and not asked:
            asked = True
            board.say("stopping: each run finishes its step and saves")
            engine.stop()
        _note(engine.poll(), queue, board, endings)
        board.tick()
        if engine.busy or queue.jobs:
            time.sleep(PAUSE)


def _note(found: list[Ending], queue: RunQueue, board: Board, endings: list[Ending]) -> None:
    """Keep how runs ended; a run that another process works on goes back to the queue."""
    for ending in found:
        if ending.state == "locked":
            queue.put_back(ending.job)
            board.put_back(ending)
        else:
            endings.append(ending)
            board.end(ending)
