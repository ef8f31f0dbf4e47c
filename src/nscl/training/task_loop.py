"""A run in progress: its tasks, their phases, their epochs, in order; each epoch is saved."""

import resource
import sys
import time
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer

from nscl.core.report.statistics import remark_on_shifts
from nscl.methods.base import Phase
from nscl.methods.registry import stores_of
from nscl.results import Result, RunDirectory, machine_load
from nscl.training.checkpoint import Place, SavedState, load_optimizer
from nscl.training.config.schema import RunConfig
from nscl.training.display.display import Display
from nscl.training.display.tally import Tally
from nscl.training.evaluation import accuracy, mean_loss
from nscl.training.loop import EpochLoop
from nscl.training.optimizers import set_rates
from nscl.training.process.device import Ranks
from nscl.training.process.interrupt import InterruptedRunError, StopSignal
from nscl.training.process.seeding import seed_all
from nscl.training.progress import Journal, RunFigures
from nscl.training.remarks import remarks
from nscl.training.setup import Setup


class TaskLoop:
    """A run in progress."""

    def __init__(
        self,
        config: RunConfig,
        setup: Setup,
        directory: RunDirectory,
        ranks: Ranks,
        display: Display,
        signal: StopSignal,
    ) -> None:
        self.config, self.directory, self.ranks = config, directory, ranks
        self.setup, self.method = setup, setup.method
        self.display, self.signal = display, signal
        self.journal = Journal(directory, setup, writes=ranks.is_first, track=config.track)
        self.progress = RunFigures()

    def run(self) -> Result:
        """Go through all tasks from where the checkpoint stands."""
        try:
            self.progress, state = self.journal.resume()
            self.display.start(
                self.config, self.setup.stream, self.progress.place, self.directory.path
            )
            while self.progress.place.task < len(self.setup.stream):
                self._task(self.progress.place.task, state)
                state = None
            return self._finish()
        finally:
            self.display.stop()
            self.journal.close()

    def _task(self, task: int, state: SavedState | None) -> None:
        self.setup.loaders.task = task
        if state is None:
            self.progress.spent, self.progress.started = 0.0, time.perf_counter()
            self.progress.shift = None
            seed_all(self.config.seed, "start", task)
            self.setup.statistics.start_task(task)
            self.method.start_task(task)
            self.journal.save_task(task)
        phases = self.method.phases(task)
        while self.progress.place.phase < len(phases):
            self._phase(phases[self.progress.place.phase], state)
            state = None
            self.progress.place = Place(task, self.progress.place.phase + 1)
        seed_all(self.config.seed, "end", task)
        self.method.end_task(task)
        self.setup.statistics.end_task(task)
        self._close_task(task)

    def _phase(self, phase: Phase, state: SavedState | None) -> None:
        place = self.progress.place
        if state is None:
            seed_all(self.config.seed, "enter", place.task, place.phase)
            self.method.enter_phase(place.task, phase)
        optimizer = self.method.optimizer(place.task, phase)
        if state is not None:
            state.restore("optimizer", partial(load_optimizer, optimizer))
            state.restore("method", self.method.load_epoch_state)
        epochs = self.method.epochs(place.task) if phase.epochs is None else phase.epochs
        while self.progress.place.epoch < epochs:
            self._epoch(phase, optimizer, epochs, state)
            state = None
        seed_all(self.config.seed, "leave", place.task, place.phase)
        self.method.leave_phase(place.task, phase)

    def _epoch(
        self, phase: Phase, optimizer: Optimizer, epochs: int, state: SavedState | None
    ) -> None:
        place, began = self.progress.place, time.perf_counter()
        seed_all(self.config.seed, "epoch", place.task, place.phase, place.epoch)
        tally = Tally()
        if state is not None and place.step:
            state.restore("rng", torch.set_rng_state)
            tally = state.restore("tally", lambda saved: Tally(**saved))
        if phase.decays:
            set_rates(optimizer, self.config.optim, place.epoch, epochs)
        self.setup.model.train()
        batches = self.setup.loaders(
            self.method.training_split(place.task),
            purpose=("epoch", place.phase, place.epoch),
            batch_size=phase.batch_size,
        )
        loop = EpochLoop(
            self.method,
            optimizer,
            place.task,
            phase,
            self.ranks,
            self.config.precision,
            stop=lambda: self.signal.reached(self.ranks),
            each_step=lambda t: self.display.step(place, phase, epochs, t, len(batches)),
        )
        tally = loop.run(batches, done=place.step, tally=tally)
        self.progress.steps += tally.steps - place.step
        self.progress.step_seconds += time.perf_counter() - began
        self._save_epoch(phase, optimizer, tally, ended=tally.steps == len(batches))

    def _save_epoch(self, phase: Phase, optimizer: Optimizer, tally: Tally, *, ended: bool) -> None:
        """Save at the end of an epoch, or within one when a stop was asked for."""
        place = self.progress.place
        if ended:
            self._log_epoch(phase, optimizer, tally)
            self.progress.place = replace(place, epoch=place.epoch + 1, step=0)
        else:
            self.progress.place = replace(place, step=tally.steps)
        self.journal.save(self.progress, optimizer, tally)
        if self.signal.reached(self.ranks):
            raise InterruptedRunError(
                f"stopped in task {place.task + 1} of {len(self.setup.stream)}; everything is "
                f"saved. Continue with: nscl resume {self.directory.path}",
                self.signal.exit_code,
            )

    def _log_epoch(self, phase: Phase, optimizer: Optimizer, tally: Tally) -> None:
        place = self.progress.place
        record: dict[str, Any] = {
            "kind": "epoch",
            "task": place.task,
            "phase": phase.name,
            "epoch": place.epoch,
            **self.ranks.total(tally).means(),
            "lr": [group["lr"] for group in optimizer.param_groups],
            "steps": self.progress.steps,
            "seconds": self.progress.task_seconds(),
            **{f"method/{name}": value for name, value in self.method.metrics().items()},
        }
        self.progress.shift = record.get("method/statistics_shift")
        if self.config.eval_each_epoch:
            record["test_accuracy"] = self._test(place.task)
        if self.config.track_old_losses:
            record["old_losses"] = self._old_losses(place.task)
        self.journal.record(record)
        self.display.epoch(record)

    def _test(self, task: int) -> float:
        batches, asked = self.setup.loaders.test(task), self._asked(task)
        return accuracy(self.method, self.setup.statistics, asked, batches, self.ranks)

    def _asked(self, task: int) -> int:
        """As which task samples are tested: as the newest, where theirs is not known."""
        return self.progress.place.task if self.setup.stream.scenario == "class" else task

    def _old_losses(self, task: int) -> list[float]:
        """Training loss of the first tasks, including the current one while it is one of them."""
        return [
            mean_loss(
                self.method,
                self.setup.statistics,
                self._asked(j),
                self.setup.loaders.glimpse(j),
                self.ranks,
            )
            for j in range(min(self.config.track_old_losses, task + 1))
        ]

    def _close_task(self, task: int) -> None:
        row = [self._test(j) for j in range(task + 1)]
        progress = self.progress
        progress.matrix = progress.matrix.with_row(row)
        progress.seconds_per_task.append(progress.task_seconds())
        progress.loads.append(machine_load())
        progress.shifts.append(self._shift())
        self.journal.save_spectra(task)
        record = {
            "kind": "task",
            "task": task,
            "accuracies": row,
            "acc": progress.matrix.acc,
            "bwt": progress.matrix.bwt,
            "seconds": progress.seconds_per_task[-1],
            "remarks": list(remark_on_shifts(progress.shifts)),
        }
        self.journal.record(record)
        self.display.task(record)
        progress.place = Place(task + 1)

    def _shift(self) -> float | None:
        """How far the task has moved the statistics that older tasks are tested with."""
        return self.progress.shift if self.config.bn_stats == "shared" else None

    def _finish(self) -> Result:
        result = self._result()
        if self.ranks.is_first:
            self.directory.write_result(result)
        self.ranks.wait()
        self.display.finish(result)
        return result

    def _result(self) -> Result:
        progress, identity = self.progress, self.directory.identity()
        return Result(
            directory=self.directory.name,
            benchmark=self.config.benchmark,
            method=self.config.method,
            preset=self.config.preset,
            seed=self.config.seed,
            accuracy=progress.matrix,
            seconds=sum(progress.seconds_per_task),
            seconds_per_task=tuple(progress.seconds_per_task),
            seconds_per_step=progress.step_seconds / progress.steps if progress.steps else None,
            steps=progress.steps,
            peak_memory_bytes=_peak_memory(),
            state_bytes=self.method.state_bytes(),
            model_bytes=sum(p.nbytes for p in self.setup.model.parameters()),
            stores=stores_of(self.config.method),
            config=identity.config,
            environment={**identity.environment, "load_while_running": progress.mean_load()},
            notes=self._notes(),
            remarks=remarks(
                self.setup.stream,
                progress.matrix,
                progress.shifts,
                strengths=type(self.method).strengths(self.method.options),
            ),
        )

    def _notes(self) -> dict[str, Any]:
        note = self.setup.stream.note
        return ({"data": note} if note else {}) | self.method.notes()


def _peak_memory() -> int:
    """Largest resident size of this process in bytes; Linux reports KiB, macOS bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
