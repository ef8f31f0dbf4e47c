"""Checkpoints: two files, each whole or absent, never a pickle that runs code.

``epoch.pt`` is written after every epoch: network, optimizer, place. What changes only between
tasks (covariances, importances, old samples) can be large and is written once per task, into
``task-N.pt``; ``epoch.pt`` names the one it belongs to. The new file replaces the old one in one
rename, and an old task file goes only when nothing names it any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch

from nscl.results import FormatError, replacing
from nscl.results.atomic import cannot_write

SCHEMA = 1


@dataclass(frozen=True)
class Place:
    """How far a run has come: the next step to make."""

    task: int = 0
    phase: int = 0
    epoch: int = 0
    step: int = 0


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
        """Write what stays the same for the whole task."""
        self._write(self.folder / f"task-{task}.pt", {"task": task, "state": dict(state)})

    def save_epoch(self, place: Place, state: Mapping[str, Any]) -> None:
        """Write what changes with every epoch, then drop task files of earlier tasks."""
        self._write(self._epoch_file, {"place": vars(place), "state": dict(state)})
        for old in self.folder.glob("task-*.pt"):
            if old.name != f"task-{place.task}.pt":
                old.unlink(missing_ok=True)

    def load(self) -> tuple[Place, dict[str, Any], dict[str, Any]]:
        """Place, task state and epoch state of the last checkpoint."""
        epoch = self._read(self._epoch_file)
        place = Place(**epoch["place"])
        task = self._read(self.folder / f"task-{place.task}.pt")
        return place, task["state"], epoch["state"]

    def _write(self, path: Path, content: dict[str, Any]) -> None:
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as problem:
            raise cannot_write(self.folder, problem) from problem
        with replacing(path) as file:
            _save({"schema": SCHEMA, "run": self.run, **content}, file)

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as problem:  # a foreign file makes torch's reader stumble in any way
            raise FormatError(
                f"{path} cannot be read ({type(problem).__name__}): it is truncated or no "
                "checkpoint; delete the run's checkpoint folder to start it anew"
            ) from problem
        if not isinstance(content, dict) or content.get("run") != self.run:
            raise FormatError(
                f"{path} is the checkpoint of another run; move it away and resume again"
            )
        if content.get("schema", 0) > SCHEMA:
            raise FormatError(f"{path} was written by a newer nscl: upgrade to resume it")
        return content


def _save(content: dict[str, Any], file: BinaryIO) -> None:
    try:
        torch.save(content, file)
    except RuntimeError as problem:
        # On a full disk torch's zip writer fails once more while closing, which hides the reason.
        if isinstance(problem.__context__, OSError):
            raise problem.__context__ from problem
        raise
