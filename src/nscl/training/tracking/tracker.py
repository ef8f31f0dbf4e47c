"""One tracker for both libraries: from records to numbers, each record once.

``metrics.jsonl`` is the truth, and what a tracker has is a copy of it. When a run begins or
continues, its records are counted from the first one again, and those that the library has already
are not written a second time. So nothing is missing and nothing is twice, wherever a run was
killed, and a run that began without ``--track`` is complete too.
"""

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from nscl.errors import NsclError
from nscl.results import RunDirectory, read_metrics
from nscl.training.tracking.numbers import numbers

TrackName = Literal["none", "tensorboard", "wandb"]


class TrackingError(NsclError):
    """What a run records cannot be sent on: names the library and the way out."""


class Library(Protocol):
    """Where numbers go."""

    known: int
    """How many records it has already, from an earlier process."""

    def write(self, number: int, steps: int, values: Mapping[str, float]) -> None:
        """Take the values of one record; ``steps`` are the run's, up to this record."""

    def close(self) -> None:
        """Finish writing."""


class Tracker:
    """Hands every record of a run to a library, or to none."""

    def __init__(self, library: Library | None = None) -> None:
        self.library = library
        self.records = self.steps = 0

    @classmethod
    def open(cls, name: TrackName, directory: RunDirectory) -> Self:
        """The tracker of a run, with everything that its log has until now."""
        tracker = cls(_open(name, directory))
        if tracker.library is not None:
            tracker.record_all(read_metrics(directory.metrics_path))
        return tracker

    def record_all(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Take the records of earlier processes."""
        for record in records:
            self.record(record)

    def record(self, record: Mapping[str, Any]) -> None:
        """Take the next record."""
        if self.library is None:
            return
        self.steps = int(record.get("steps", self.steps))  # evaluations have none of their own
        if self.records >= self.library.known:
            self.library.write(self.records, self.steps, numbers(record))
        self.records += 1

    def close(self) -> None:
        """Finish writing; closing twice is harmless."""
        if self.library is not None:
            self.library.close()
        self.library = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def check_library(name: TrackName) -> None:
    """Refuse a library that is not installed, before anything is trained."""
    if name == "none":
        return
    found = find_spec(name)
    # W&B leaves a folder of its name where people work, which Python takes for a package.
    if found is None or found.origin is None:
        raise TrackingError(f"--track {name} needs the package {name}: pip install 'nscl[{name}]'")


def folder_of(name: TrackName, run: Path) -> Path:
    """Where the library keeps the files of a run."""
    return run / name


def is_tracked(name: TrackName, run: Path) -> bool:
    """Whether there is nothing left to do for a finished run."""
    return name == "none" or folder_of(name, run).exists()


def track_finished(name: TrackName, directory: RunDirectory) -> None:
    """Send on what a run recorded that was finished without ``--track``."""
    if not is_tracked(name, directory.path):
        with directory.lock(), Tracker.open(name, directory):
            pass


def _open(name: TrackName, directory: RunDirectory) -> Library | None:
    """The library by name; each is imported here only."""
    check_library(name)
    folder = folder_of(name, directory.path)
    if name == "tensorboard":
        from nscl.training.tracking.tensorboard_files import TensorBoardFiles

        return TensorBoardFiles(folder)
    if name == "wandb":
        from nscl.training.tracking.wandb_run import WandbRun

        return WandbRun(directory, folder)
    return None
