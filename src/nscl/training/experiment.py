"""A run from its configuration to its result: tasks, phases, epochs, in order."""

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.optim import Optimizer

from nscl.data.digest import digest
from nscl.data.tasks import TaskStream
from nscl.methods.base import Phase
from nscl.methods.registry import stores_of
from nscl.results import Result, RunDirectory, fingerprint, run_name
from nscl.training.checkpoint import Place
from nscl.training.config import RunConfig
from nscl.training.device import Ranks
from nscl.training.display import Display, Quiet
from nscl.training.evaluation import accuracy, mean_loss
from nscl.training.interrupt import InterruptedRunError, StopSignal
from nscl.training.loop import EpochLoop
from nscl.training.optimizers import set_rates
from nscl.training.prepare import complete
from nscl.training.progress import Journal, Progress
from nscl.training.seeding import seed_all
from nscl.training.setup import Setup
from nscl.training.tally import Tally

State = dict[str, Any]


def run(
    config: RunConfig, *, stream: TaskStream | None = None, display: Display | None = None
) -> Result:
    """Train a stream of tasks; a finished run is read back, a broken one continues.

    ``stream`` is one of your own, in place of the named benchmark; its digest joins the
    configuration, so that a run never continues on other data.

    >>> import nscl
    >>> config = nscl.build_config("split-digits-5", {"method": "finetune"})
    >>> nscl.run(config)  # doctest: +SKIP
    """
    config = complete(config)
    if stream is not None:
        own = {"digest": digest(stream), "scenario": stream.scenario}
        config = config.model_copy(update={"data": config.data.model_copy(update=own)})
    ranks = Ranks()
    try:
        with _threads(config.threads):
            return _run(config, ranks, display or Quiet(), stream)
    finally:
        ranks.close()


def _run(config: RunConfig, ranks: Ranks, display: Display, stream: TaskStream | None) -> Result:
    names: State = {"benchmark": config.benchmark, "method": config.method, "seed": config.seed}
    identity = config.identity()
    there = RunDirectory(config.out / run_name(**names, config=identity))
    if there.is_finished:
        return there.result()
    setup = Setup.build(config, ranks, stream=stream)
    try:
        # Only now, when data, network and options are known to be good, is a folder made.
        with _first_rank_first(ranks):
            directory = RunDirectory.create(
                config.out, **names, config=identity, environment=fingerprint() | config.place()
            )
        with _alone(directory, ranks), StopSignal() as signal:
            if ranks.largest(int(directory.is_finished)):  # by another process, meanwhile
                return directory.result()
            return Experiment(config, setup, directory, ranks, display, signal).run()
    finally:
        setup.close()


@contextmanager
def _first_rank_first(ranks: Ranks) -> Iterator[None]:
    """Others enter when the first rank has left: a folder half made is no run to them."""
    if not ranks.is_first:
        ranks.wait()
    yield
    if ranks.is_first:
        ranks.wait()


@contextmanager
def _alone(directory: RunDirectory, ranks: Ranks) -> Iterator[None]:
    if not ranks.is_first:
        yield
        return
    with directory.lock():
        yield


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Experiment:
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
        self.journal = Journal(directory, setup, writes=ranks.is_first)
        self.progress = Progress()

    def run(self) -> Result:
        """Go through all tasks from wherever the checkpoint stands."""
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

    def _task(self, task: int, state: State | None) -> None:
        self.setup.loaders.task = task
        if state is None:
            self.progress.spent, self.progress.started = 0.0, time.perf_counter()
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

    def _phase(self, phase: Phase, state: State | None) -> None:
        place = self.progress.place
        if state is None:
            seed_all(self.config.seed, "enter", place.task, place.phase)
            self.method.enter_phase(place.task, phase)
        optimizer = self.method.optimizer(place.task, phase)
        if state is not None:
            optimizer.load_state_dict(state["optimizer"])
            self.method.load_epoch_state(state["method"])
        epochs = self.config.optim.epochs if phase.epochs is None else phase.epochs
        while self.progress.place.epoch < epochs:
            self._epoch(phase, optimizer, epochs, state)
            state = None
        seed_all(self.config.seed, "leave", place.task, place.phase)
        self.method.leave_phase(place.task, phase)

    def _epoch(self, phase: Phase, optimizer: Optimizer, epochs: int, state: State | None) -> None:
        place, began = self.progress.place, time.perf_counter()
        seed_all(self.config.seed, "epoch", place.task, place.phase, place.epoch)
        tally = Tally()
        if state is not None and place.step:
            torch.set_rng_state(state["rng"])
            tally = Tally(**state["tally"])
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
        self._save_epoch(phase, optimizer, tally, whole=tally.steps == len(batches))

    def _save_epoch(self, phase: Phase, optimizer: Optimizer, tally: Tally, *, whole: bool) -> None:
        """Save after a whole epoch, or in the middle of one when a stop was asked for."""
        place = self.progress.place
        if whole:
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
        record: State = {
            "kind": "epoch",
            "task": place.task,
            "phase": phase.name,
            "epoch": place.epoch,
            **self.ranks.whole(tally).means(),
            "lr": [group["lr"] for group in optimizer.param_groups],
            "steps": self.progress.steps,
            "seconds": self.progress.task_seconds(),
            **{f"method/{name}": value for name, value in self.method.metrics().items()},
        }
        if self.config.eval_each_epoch:
            record["test_accuracy"] = self._test(place.task)
        if self.config.track_old_losses:
            record["old_losses"] = self._old_losses(place.task)
        self.journal.record(record)
        self.display.epoch(record)

    def _test(self, task: int) -> float:
        batches = self.setup.loaders.test(task)
        return accuracy(self.method, self.setup.statistics, task, batches, self.ranks)

    def _old_losses(self, task: int) -> list[float]:
        """Training loss of the first tasks, the one at hand included while it is one of them."""
        return [
            mean_loss(
                self.method, self.setup.statistics, j, self.setup.loaders.glimpse(j), self.ranks
            )
            for j in range(min(self.config.track_old_losses, task + 1))
        ]

    def _close_task(self, task: int) -> None:
        row = [self._test(j) for j in range(task + 1)]
        progress = self.progress
        progress.matrix = progress.matrix.with_row(row)
        progress.seconds_per_task.append(progress.task_seconds())
        self.journal.save_spectra(task)
        record = {
            "kind": "task",
            "task": task,
            "accuracies": row,
            "acc": progress.matrix.acc,
            "bwt": progress.matrix.bwt,
            "seconds": progress.seconds_per_task[-1],
        }
        self.journal.record(record)
        self.display.task(record)
        progress.place = Place(task + 1)

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
            environment=identity.environment,
            notes=self._notes(),
        )

    def _notes(self) -> State:
        note = self.setup.stream.note
        return ({"data": note} if note else {}) | self.method.notes()


def _peak_memory() -> int:
    """Largest resident size of this process in bytes; Linux tells KiB, macOS bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
