"""One run of a plan: its configuration, its row in the table, its folder, and how it ended."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from nscl.data.catalogue import find_benchmark
from nscl.results import FormatError, Result, RunDirectory, run_name
from nscl.training.config import RunConfig

State = Literal["done", "failed", "killed", "stopped", "locked"]


@dataclass(frozen=True)
class Job:
    """A complete configuration; runs of the same ``label`` differ in their seed only."""

    config: RunConfig
    label: str

    @cached_property
    def directory(self) -> RunDirectory:
        """The run's folder, there or not yet."""
        config = self.config
        name = run_name(
            benchmark=config.benchmark,
            method=config.method,
            seed=config.seed,
            config=config.identity(),
        )
        return RunDirectory(config.out / name)

    @property
    def name(self) -> str:
        """The run's name: equal names are the same run."""
        return self.directory.name

    @property
    def title(self) -> str:
        """What a person calls it."""
        return f"{self.label} seed {self.config.seed}"

    @property
    def log(self) -> Path:
        """What the run's process prints. Hidden, because every visible entry there is a run."""
        return self.config.out / ".logs" / f"{self.name}.log"

    @property
    def is_begun(self) -> bool:
        """Whether there is something to continue."""
        return (self.directory.checkpoint_path / "epoch.pt").exists()

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
        whole = data.tasks or find_benchmark(self.config.benchmark).tasks or 1
        return min(whole, data.first or whole)


@dataclass(frozen=True)
class Ending:
    """How a run ended; ``error`` is one line. "locked" is no end: another process works on it."""

    job: Job
    state: State
    error: str = ""


def ended_before(job: Job) -> Ending:
    """The ending of a run that has its result already, if that can be read."""
    try:
        job.directory.result()
    except FormatError as problem:
        return Ending(job, "failed", f"{problem}; move its folder away to run it again")
    return Ending(job, "done")
