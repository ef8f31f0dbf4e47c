"""One run of a plan: its configuration, its row in the table, its folder, and how it ended."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from nscl.data.catalogue import find_benchmark
from nscl.results import FormatError, Result, RunDirectory
from nscl.training.config.schema import RunConfig
from nscl.training.tracking.tracker import is_tracked

EndState = Literal["done", "failed", "killed", "stopped", "locked"]


@dataclass(frozen=True)
class Job:
    """A complete configuration; runs of the same ``label`` differ in their seed only."""

    config: RunConfig
    label: str

    @cached_property
    def directory(self) -> RunDirectory:
        """The run's folder, which need not exist yet."""
        return RunDirectory(self.config.out / self.config.run_name)

    @property
    def name(self) -> str:
        """The run's name: equal names are the same run."""
        return self.directory.name

    @property
    def title(self) -> str:
        """Its name for people."""
        return f"{self.label} seed {self.config.seed}"

    @property
    def log(self) -> Path:
        """The output of the run's process. Hidden: every visible entry of the folder is a run."""
        return self.config.out / ".logs" / f"{self.name}.log"

    @property
    def is_begun(self) -> bool:
        """Whether there is something to continue."""
        return (self.directory.checkpoint_path / "epoch.pt").exists()

    @property
    def is_done(self) -> bool:
        """Whether it has its result, and has been sent to the tracker that is asked for."""
        return self.directory.is_finished and is_tracked(self.config.track, self.directory.path)

    def result(self) -> Result | None:
        """Its result, if it has one that can be read."""
        try:
            return self.directory.result() if self.directory.is_finished else None
        except FormatError:
            return None

    @property
    def tasks(self) -> int:
        """How many tasks it goes through."""
        data = self.config.data
        tasks = data.tasks or find_benchmark(self.config.benchmark).tasks or 1
        return min(tasks, data.first or tasks)


@dataclass(frozen=True)
class Ending:
    """How a run ended; ``error`` is one line. "locked" means that another process works on it."""

    job: Job
    state: EndState
    error: str = ""


def ended_before(job: Job) -> Ending:
    """The ending of a run that has its result already, if that can be read."""
    try:
        job.directory.result()
    except FormatError as problem:
        return Ending(job, "failed", str(problem))
    return Ending(job, "done")
