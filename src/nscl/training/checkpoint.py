"""Checkpoints: two files, each complete or absent, never a pickle that runs code.

``epoch.pt`` is written after every epoch: network, optimizer, place. State that changes only
between tasks (covariances, importances, old samples) can be large and is written once per task,
into ``task-N.pt``; ``epoch.pt`` names the one it belongs to. A new file replaces the old one in one
rename. An old task file is removed when no ``epoch.pt`` names it any more.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from nscl.results import FormatError, open_atomic
from nscl.results.writing import cannot_write

SCHEMA = 1
WAY_OUT = "delete the run's checkpoint folder to start the run again"
MISFIT = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)
T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """How far a run has come: the next step to make."""

    task: int = 0
    phase: int = 0
    epoch: int = 0
    step: int = 0


class SavedState(dict[str, Any]):
    """The entries of one checkpoint file; a missing or unfit one is a FormatError of one line."""

    def __init__(self, path: Path, entries: Mapping[str, Any]) -> None:
        super().__init__(entries)
        self.path = path

    def __missing__(self, key: str) -> Any:
        raise FormatError(f"{self.path} has no {key!r}: {WAY_OUT}")

    def restore(self, key: str, load: Callable[[Any], T]) -> T:
        """Hand the entry ``key`` to ``load`` and return what it returns."""
        entry = self[key]
        try:
            return load(entry)
        except (FormatError, torch.OutOfMemoryError):
            raise
        except MISFIT as problem:
            raise FormatError(
                f"{self.path}: {key!r} does not fit this run ({_reason(problem)}): {WAY_OUT}"
            ) from problem


class Checkpoint:
    """Reads and writes the checkpoint of one run."""

    def __init__(self, folder: Path, run: str) -> None:
        self.folder, self.run = folder, run

    @property
    def exists(self) -> bool:
        """Whether there is anything to continue from."""
        return self._epoch_file.exists()

    @property
    def _epoch_file(self) -> Path:
        return self.folder / "epoch.pt"

    def save_task(self, task: int, state: Mapping[str, Any]) -> None:
        """Write the state that stays the same during a task."""
        self._write(self.folder / f"task-{task}.pt", {"task": task, "state": dict(state)})

    def save_epoch(self, place: Place, state: Mapping[str, Any]) -> None:
        """Write the state that changes with every epoch, then drop files of earlier tasks."""
        self._write(self._epoch_file, {"place": vars(place), "state": dict(state)})
        for old in self.folder.glob("task-*.pt"):
            if old.name != f"task-{place.task}.pt":
                old.unlink(missing_ok=True)

    def load(self) -> tuple[Place, SavedState, SavedState]:
        """Place, task state and epoch state of the last checkpoint."""
        epoch = self._read(self._epoch_file)
        place = epoch.restore("place", lambda saved: Place(**saved))
        task = self._read(self.folder / f"task-{place.task}.pt")
        return place, _state(task), _state(epoch)

    def _write(self, path: Path, content: dict[str, Any]) -> None:
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as problem:
            raise cannot_write(self.folder, problem) from problem
        with open_atomic(path) as file:
            _save({"schema": SCHEMA, "run": self.run, **content}, file)

    def _read(self, path: Path) -> SavedState:
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as problem:  # what torch raises depends on the file
            raise FormatError(
                f"{path} cannot be read ({type(problem).__name__}): it is truncated or not a "
                f"checkpoint; {WAY_OUT}"
            ) from problem
        if not isinstance(content, dict) or content.get("run") != self.run:
            raise FormatError(
                f"{path} is the checkpoint of another run; move it away and resume again"
            )
        if content.get("schema", 0) > SCHEMA:
            raise FormatError(f"{path} was written by a newer nscl: update nscl to resume it")
        return SavedState(path, content)


def load_optimizer(optimizer: Optimizer, saved: Any) -> None:
    """Load an optimizer's state and check the shapes, which torch does not before the next step."""
    optimizer.load_state_dict(saved)
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            same = not isinstance(value, Tensor) or value.shape in (parameter.shape, ())
            if name in MOMENTS and not same:
                raise ValueError(
                    f"{name} has shape {tuple(value.shape)}, its parameter {tuple(parameter.shape)}"
                )


MOMENTS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer")


def _state(content: SavedState) -> SavedState:
    return content.restore("state", lambda saved: SavedState(content.path, saved))


def _reason(problem: Exception) -> str:
    """The first line that says something: torch heads its list of misfits with a title."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    if isinstance(problem, KeyError):
        return f"it lacks {', '.join(lines)}"
    return lines[min(1, len(lines) - 1)] if lines else type(problem).__name__


def _save(content: dict[str, Any], file: BinaryIO) -> None:
    try:
        torch.save(content, file)
    except RuntimeError as problem:
        # On a full disk torch's zip writer fails once more while closing, which hides the reason.
        if isinstance(problem.__context__, OSError):
            raise problem.__context__ from problem
        raise
