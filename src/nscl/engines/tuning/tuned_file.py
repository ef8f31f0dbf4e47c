"""The record of a tuning: every trial and the choice, in one file per method."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Self

from pydantic import Field

from nscl.errors import NsclError
from nscl.results import flat, slug, write_json
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
    seed: int = 0
    error: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)  # further images used, old ones kept


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
        """The first trial that has the chosen values."""
        chosen = {**self.settings.get("options", {}), **flat(self.settings)}
        for trial in self.trials:
            if all(chosen.get(name) == value for name, value in trial.point.items()):
                return trial
        raise NsclError(f"no trial of {self.method} on {self.benchmark} has the chosen values")

    @property
    def acc(self) -> float:
        """The mean ACC of the chosen values over their seeds."""
        point = self.choice.point
        return fmean(t.acc for t in self.trials if t.point == point and t.acc is not None)

    def write(self, path: Path) -> None:
        """Write the record, atomically."""
        make_folder(path.parent)
        trials = [_without_first_seed(asdict(trial)) for trial in self.trials]
        write_json(path, {"schema": SCHEMA, **asdict(self), "trials": trials})

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what ``write`` wrote; a damaged file is an error of one line."""
        values = read_json(path, way_out=WAY_OUT)
        check_schema(values, known=SCHEMA, path=path)
        del values["schema"]
        return checked(cls, values, place=path, way_out=WAY_OUT)


def _without_first_seed(trial: dict[str, Any]) -> dict[str, Any]:
    # Records of before second seeds have no seed, and stay as they are.
    return {name: value for name, value in trial.items() if name != "seed" or value}


def tuned_path(root: Path, *, benchmark: str, preset: str, method: str) -> Path:
    """Path of the record of a method.

    >>> str(tuned_path(Path("tuned"), benchmark="split-digits-5", preset="cpu", method="ewc"))
    'tuned/split-digits-5-cpu/ewc.json'
    """
    return root / f"{slug(benchmark)}-{preset}" / f"{slug(method)}.json"


def known_trials(path: Path, names: Sequence[str], *, force: bool) -> list[TrialRecord]:
    """Trials on record that need not be repeated; a record of other settings is an error."""
    if force or not path.exists():
        return []
    there = list(Tuned.read(path).trials)
    if any(set(trial.point) != set(names) for trial in there):
        raise TuningFileError(
            f"{path} records trials of another protocol or grid: "
            "add --force to replace it, or choose another folder with --out"
        )
    return there
