"""``result.json``: what a finished run says for itself, and everything a report needs of it.

The figures ACC, BWT, forgetting and learning accuracy are computed from the accuracy matrix, so a
``Result`` cannot contradict itself; in the file they are written out for people and other tools,
and checked against the matrix when it is read.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from nscl.metrics import AccuracyMatrix, MetricError
from nscl.results.errors import FormatError
from nscl.results.reading import check_schema, read_json
from nscl.results.result_fields import FIELDS, FIGURES, check_types

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Result:
    """One finished run.

    ``stores`` says what the method keeps of old tasks: "nothing", "parameters" (statistics or
    weights) or "data" (old samples). ``state_bytes`` is the size of that, ``model_bytes`` that of
    the network, so their ratio is the paper's memory ratio. ``notes`` is for what one method wants
    to tell. ``directory`` is the name of the run's folder. Unknown figures are None.
    """

    directory: str
    benchmark: str
    method: str
    preset: str | None
    seed: int
    accuracy: AccuracyMatrix
    seconds: float
    seconds_per_task: tuple[float, ...]
    seconds_per_step: float | None
    steps: int
    peak_memory_bytes: int | None
    state_bytes: int
    model_bytes: int
    stores: str
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds_per_task", tuple(self.seconds_per_task))
        check_types(self._stored(), place=f"the result of {self.directory}")
        if not self.accuracy.tasks:
            raise FormatError(
                f"the result of {self.directory} has no accuracy: no task was trained"
            )

    @property
    def acc(self) -> float:
        """Average accuracy over all tasks at the end, in percent."""
        return self.accuracy.acc

    @property
    def bwt(self) -> float:
        """Backward transfer, in points; negative means forgetting."""
        return self.accuracy.bwt

    @property
    def forgetting(self) -> float:
        """Chaudhry's forgetting, in points."""
        return self.accuracy.forgetting

    @property
    def learning_accuracy(self) -> float:
        """Average accuracy of each task right after it was trained."""
        return self.accuracy.learning_accuracy

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        figures = {name: getattr(self, name) for name in FIGURES}
        return {"schema": SCHEMA, **figures, **self._stored()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], *, place: str | Path = "the result") -> Self:
        """Read what ``to_dict`` wrote; ``place`` names the source in errors."""
        check_schema(dict(record), known=SCHEMA, path=place)
        _check_names(record, place)
        stored = {name: record[name] for name in FIELDS}
        check_types(stored, place=str(place))
        try:
            result = cls(**{**stored, "accuracy": AccuracyMatrix.from_dict(record["accuracy"])})
        except MetricError as error:
            raise FormatError(f"{place}: {error}") from error
        _check_figures(result, record, place)
        return result

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a ``result.json``, or the one in the folder of a run."""
        file = Path(path) / "result.json" if Path(path).is_dir() else Path(path)
        return cls.from_dict(read_json(file), place=file)

    def _stored(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain = {"accuracy": self.accuracy.to_dict()} | {
            "seconds_per_task": list(self.seconds_per_task)
        }
        mappings = {name: dict(values[name]) for name in ("config", "environment", "notes")}
        return values | plain | mappings


def _check_names(record: Mapping[str, Any], place: str | Path) -> None:
    expected = {"schema", *FIELDS, *FIGURES}
    missing, foreign = expected - set(record), set(record) - expected
    if missing:
        raise FormatError(f"{place} is not a whole result: it lacks {', '.join(sorted(missing))}")
    if foreign:
        raise FormatError(f"{place} has fields nscl does not know: {', '.join(sorted(foreign))}")


def _check_figures(result: Result, record: Mapping[str, Any], place: str | Path) -> None:
    for name in FIGURES:
        told, true = record[name], getattr(result, name)
        if not isinstance(told, int | float) or not math.isclose(told, true, abs_tol=1e-9):
            raise FormatError(
                f"{place} contradicts itself: {name} is {told!r}, its accuracy matrix gives {true}"
            )
