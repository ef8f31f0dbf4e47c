"""A run of W&B: project ``nscl``, named like the run, with the same id whenever it continues.

Online, W&B says how many records it has, and the others follow. Offline it cannot know: the folder
that a killed process left is replaced by one with all records, under the same id.
"""

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import wandb

from nscl.messages import one_line
from nscl.results import RunDirectory
from nscl.results.writing import cannot_write, write_text
from nscl.training.tracking.tracker import TrackingError

STEPS = "steps"  # the axis of all curves: W&B's own step counts records


class WandbRun:
    """One row of history per record; nothing is printed, and no system figures are taken."""

    def __init__(self, directory: RunDirectory, folder: Path) -> None:
        self.directory = directory
        own_id = _own_id(folder)
        for old in folder.glob(f"offline-run-*-{own_id}"):
            shutil.rmtree(old)
        with _in_one_line():
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "nscl"),
                name=directory.name,
                id=own_id,
                resume=None if _is_offline() else "allow",
                dir=directory.path.resolve(),  # W&B's own process may have another folder
                config=directory.config(),
                settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
            )
            self._run.define_metric("*", step_metric=STEPS)
        self.known = self._run.step

    def write(self, number: int, steps: int, values: Mapping[str, float]) -> None:
        """Add a row, and do not wait for the network."""
        with _in_one_line():
            self._run.log({STEPS: steps, **values}, step=number, commit=True)

    def close(self) -> None:
        """Wait until everything is written; a run without a result is marked as failed."""
        with _in_one_line():
            self._run.finish(exit_code=0 if self.directory.is_finished else 1)


def _own_id(folder: Path) -> str:
    """A random id, drawn once: two runs of the same name are two runs of W&B."""
    path = folder / "id"
    try:
        if not path.exists():
            folder.mkdir(exist_ok=True)
            write_text(path, secrets.token_hex(4))
        return path.read_text().strip()
    except OSError as error:
        raise cannot_write(path, error) from error


def _is_offline() -> bool:
    """By WANDB_MODE, or by the settings of W&B itself."""
    return wandb.setup().settings.mode in ("offline", "dryrun")


@contextmanager
def _in_one_line() -> Iterator[None]:
    try:
        yield
    except wandb.Error as problem:
        raise TrackingError(
            f"--track wandb: {one_line(problem)}; log in with `wandb login`, set "
            "WANDB_MODE=offline, or continue with --track none"
        ) from problem
