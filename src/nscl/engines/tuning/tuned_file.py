"""The record of a tuning: every trial and the choice, in one file per method."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from nscl.errors import NsclError
from nscl.results import FormatError, slug, write_json
from nscl.results.records.reading import check_schema, read_json
from nscl.results.writing import make_folder

SCHEMA = 1


class TuningFileError(NsclError, FileExistsError):
    """A record of another tuning is there: names it and the way out."""


@dataclass(frozen=True)
class TrialRecord:
    """One trial: its run, its values, and its figures or its error."""

    run: str
    point: Mapping[str, float]
    acc: float | None = None
    bwt: float | None = None
    seconds: float | None = None
    error: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)  # further images used, old ones kept


def best_trial(trials: Sequence[TrialRecord]) -> TrialRecord | None:
    """The best ACC, then the best BWT, then the first; None where all failed."""
    alive = [trial for trial in trials if trial.acc is not None and trial.bwt is not None]
    return max(alive, key=lambda trial: (trial.acc, trial.bwt), default=None)


@dataclass(frozen=True)
class Tuned:
    """All trials of one method and the choice."""

    benchmark: str
    preset: str
    method: str
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
        """Read what ``write`` wrote."""
        record = dict(read_json(path))
        check_schema(record, known=SCHEMA, path=path)
        record.pop("schema", None)
        try:
            trials = tuple(TrialRecord(**trial) for trial in record.pop("trials"))
            return cls(trials=trials, **record)
        except (TypeError, KeyError) as problem:
            raise FormatError(f"{path} is not the record of a tuning: {problem}") from problem


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
