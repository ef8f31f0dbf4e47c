"""The record of a tuning: every trial and the choice, in one file per method."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field

from nscl.errors import NsclError
from nscl.results import slug, write_json
from nscl.results.records.reading import check_schema, read_json
from nscl.results.records.record import Name, Number, Seconds, checked, record
from nscl.results.writing import make_folder

SCHEMA = 1
WAY_OUT = "restore the file, or add --force to tune again"

Value = Annotated[int, Field(strict=True)] | Number  # 30 stays 30 in the file


class TuningFileError(NsclError, FileExistsError):
    """A record of another tuning is there: names it and the way out."""


@record
class TrialRecord:
    """One trial: its run, its values, and its figures or its error."""

    run: Name
    point: Mapping[str, Value]
    acc: Number | None = None
    bwt: Number | None = None
    seconds: Seconds | None = None
    error: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)  # further images used, old ones kept


def best_trial(trials: Sequence[TrialRecord]) -> TrialRecord | None:
    """The best ACC, then the best BWT, then the first; None where all failed."""
    alive = [trial for trial in trials if trial.acc is not None and trial.bwt is not None]
    return max(alive, key=lambda trial: (trial.acc, trial.bwt), default=None)


@record
class Tuned:
    """All trials of one method and the choice."""

    benchmark: Name
    preset: Name
    method: Name
    settings: Mapping[str, Any]  # the choice, as settings of a preset
    trials: tuple[TrialRecord, ...]
    protocol: Mapping[str, Any] = field(default_factory=dict)  # of the trials: data, seed

    @property
    def choice(self) -> TrialRecord:
        """The trial whose values were chosen."""
        found = best_trial(self.trials)
        if found is None:
            raise NsclError(f"no trial of {self.method} on {self.benchmark} has a result")
        return found

    def write(self, path: Path) -> None:
        """Write the record, atomically."""
        make_folder(path.parent)
        write_json(path, {"schema": SCHEMA, **asdict(self)})

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what ``write`` wrote; a damaged file is an error of one line."""
        values = read_json(path, way_out=WAY_OUT)
        check_schema(values, known=SCHEMA, path=path)
        del values["schema"]
        return checked(cls, values, place=path, way_out=WAY_OUT)


def tuned_path(root: Path, *, benchmark: str, preset: str, method: str) -> Path:
    """Path of the record of a method.

    >>> str(tuned_path(Path("tuned"), benchmark="split-digits-5", preset="cpu", method="ewc"))
    'tuned/split-digits-5-cpu/ewc.json'
    """
    return root / f"{slug(benchmark)}-{preset}" / f"{slug(method)}.json"


def known_trials(path: Path, planned: set[str], *, force: bool) -> dict[str, TrialRecord]:
    """Trials on record that need not be repeated; a record of other trials is an error."""
    if force or not path.exists():
        return {}
    there = {trial.run: trial for trial in Tuned.read(path).trials}
    if not there.keys() <= planned:
        raise TuningFileError(
            f"{path} records trials of another protocol or grid: "
            "add --force to replace it, or choose another folder with --out"
        )
    return there
