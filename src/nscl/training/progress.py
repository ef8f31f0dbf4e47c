"""How far a run has come, and what records it: log, tracker, checkpoint, spectra."""

import time
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch.optim import Optimizer

from nscl.metrics import AccuracyMatrix
from nscl.results import MetricsLog, RunDirectory
from nscl.results.records import spectra
from nscl.training.checkpoint import Checkpoint, Place, SavedState
from nscl.training.display.tally import Tally
from nscl.training.setup import Setup
from nscl.training.tracking.tracker import Tracker, TrackName


@dataclass
class RunFigures:
    """The figures of a run so far."""

    place: Place = field(default_factory=Place)
    matrix: AccuracyMatrix = field(default_factory=AccuracyMatrix)
    seconds_per_task: list[float] = field(default_factory=list)
    spent: float = 0.0  # seconds on the current task, by earlier processes
    steps: int = 0
    step_seconds: float = 0.0
    loads: list[float | None] = field(default_factory=list)  # of the machine, at every task's end
    shifts: list[float | None] = field(default_factory=list)  # of running statistics, per task
    shift: float | None = None  # of the current task, after its last epoch
    started: float = field(default_factory=time.perf_counter)  # this process, this task

    def task_seconds(self) -> float:
        """Seconds on the current task, by all processes."""
        return self.spent + time.perf_counter() - self.started

    def mean_load(self) -> float | None:
        """Load of the machine while the run went on; None if it is not known."""
        known = [load for load in self.loads if load is not None]
        return round(fmean(known), 2) if known else None

    def to_state(self) -> dict[str, Any]:
        """Plain data for a checkpoint."""
        return {
            "matrix": self.matrix.to_dict(),
            "seconds_per_task": self.seconds_per_task,
            "spent": self.task_seconds(),
            "steps": self.steps,
            "step_seconds": self.step_seconds,
            "loads": self.loads,
            "shifts": self.shifts,
            "shift": self.shift,
        }

    @classmethod
    def from_state(cls, place: Place, state: dict[str, Any]) -> "RunFigures":
        """Read what ``to_state`` wrote."""
        matrix = AccuracyMatrix.from_dict(state["matrix"])
        names = ("seconds_per_task", "spent", "steps", "step_seconds")
        known = {name: state[name] for name in names}
        # Absent in older checkpoints; shifts are counted by their task.
        loads, unknown = list(state.get("loads", ())), [None] * len(known["seconds_per_task"])
        shifts, shift = list(state.get("shifts", unknown)), state.get("shift")
        return cls(place, matrix, **known, loads=loads, shifts=shifts, shift=shift)


class Journal:
    """Writes a run's files; on all ranks but the first it writes nothing."""

    def __init__(
        self, directory: RunDirectory, setup: Setup, *, writes: bool, track: TrackName = "none"
    ) -> None:
        self.directory, self.setup = directory, setup
        self.track: TrackName = track if writes else "none"
        self.tracker = Tracker()  # until ``resume`` knows which records count
        self.checkpoint = Checkpoint(directory.checkpoint_path, directory.name)
        self.log = MetricsLog(directory.metrics_path) if writes else None

    def record(self, record: dict[str, Any]) -> None:
        """Add a line to the log, and send it on."""
        if self.log is not None:
            self.log.append(record)
            self.tracker.record(record)

    def save_task(self, task: int) -> None:
        """Save what the method keeps during the task."""
        if self.log is not None:
            self.checkpoint.save_task(task, {"method": self.setup.method.task_state()})

    def save(self, progress: RunFigures, optimizer: Optimizer, tally: Tally) -> None:
        """Save everything that changes during an epoch."""
        if self.log is None:
            return
        self.log.sync()
        self.checkpoint.save_epoch(
            progress.place,
            {
                "model": self.setup.model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "method": self.setup.method.epoch_state(),
                "statistics": self.setup.statistics.state_dict(),
                "tally": tally.to_dict(),
                "rng": torch.get_rng_state(),
                "records": self.log.records,
                "progress": progress.to_state(),
            },
        )

    def resume(self) -> tuple[RunFigures, SavedState | None]:
        """Continue from the last checkpoint, or start."""
        found = self._restored()
        self.tracker = Tracker.open(self.track, self.directory)
        return found

    def _restored(self) -> tuple[RunFigures, SavedState | None]:
        if not self.checkpoint.exists:
            if self.log is not None:
                self.log.truncate_to(0)
            return RunFigures(), None
        place, task, epoch = self.checkpoint.load()
        epoch.restore("model", self.setup.model.load_state_dict)
        epoch.restore("statistics", self.setup.statistics.load_state_dict)
        task.restore("method", self.setup.method.load_task_state)
        if self.log is not None:
            epoch.restore("records", self.log.truncate_to)
        return epoch.restore("progress", partial(RunFigures.from_state, place)), epoch

    def save_spectra(self, task: int) -> None:
        """Write the eigenvalues of this task's end, if the method has any."""
        found = self.setup.method.spectra()
        if found and self.log is not None:
            layers = {
                name: {"eigenvalues": values.numpy(), "weights": weights.numpy()}
                for name, (values, weights) in found.items()
            }
            spectra.add_task(self.directory.spectra_path, task, layers)

    def close(self) -> None:
        """Close the log and the tracker."""
        if self.log is not None:
            self.log.close()
        self.tracker.close()
