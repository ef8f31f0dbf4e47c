"""``result.json``: the result of a finished run, with everything that a report needs.

The figures ACC, BWT, forgetting and learning accuracy are computed from the accuracy matrix, so a
``Result`` cannot contradict itself. The file has them too, for people and other tools; they are
compared with the matrix when the file is read.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import PlainValidator

from nscl.metrics import AccuracyMatrix
from nscl.results.errors import FormatError
from nscl.results.records.reading import check_schema, read_json
from nscl.results.records.record import Count, Name, Number, Seconds, checked, record

SCHEMA = 1
WAY_OUT = "move its folder away to run it again"


def _matrix(value: object) -> AccuracyMatrix:
    matrix = value if isinstance(value, AccuracyMatrix) else AccuracyMatrix.from_dict(value)
    if not matrix.tasks:
        raise ValueError("the accuracy matrix is empty: no task was trained")
    return matrix


@record
class StatedFigures:
    """The figures of a result, as its file states them."""

    acc: Number
    bwt: Number
    forgetting: Number
    learning_accuracy: Number


@record
class Result:
    """One finished run.

    ``stores`` is what the method keeps of old tasks: "nothing", "parameters" (statistics or
    weights) or "data" (old samples). ``state_bytes`` is the size of that and ``model_bytes`` the
    size of the network, so their ratio is the paper's memory ratio. ``notes`` are the method's own.
    ``remarks`` warn of accuracies that do not mean what they seem to. ``directory`` is the name of
    the run's folder. Unknown figures are None.
    """

    directory: Name
    benchmark: Name
    method: Name
    preset: Name | None
    seed: Count
    accuracy: Annotated[AccuracyMatrix, PlainValidator(_matrix)]
    seconds: Seconds
    seconds_per_task: tuple[Seconds, ...]
    seconds_per_step: Seconds | None
    steps: Count
    peak_memory_bytes: Count | None
    state_bytes: Count
    model_bytes: Count
    stores: Literal["nothing", "parameters", "data"]
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    notes: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[Name, ...] = ()  # absent in older files

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
        stored = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        copies = {name: dict(stored[name]) for name in ("config", "environment", "notes")}
        lists = {
            "accuracy": self.accuracy.to_dict(),
            "seconds_per_task": list(self.seconds_per_task),
        }
        # Left out where there are none: older versions do not know the field.
        remarks = {"remarks": list(self.remarks)} if stored.pop("remarks") else {}
        return {"schema": SCHEMA, **figures, **stored, **copies, **lists, **remarks}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, place: str | Path = "the result") -> Self:
        """Read what ``to_dict`` wrote; ``place`` names the source in errors."""
        check_schema(values, known=SCHEMA, path=place)
        written = {name: values[name] for name in FIGURES if name in values}
        rest = {name: v for name, v in values.items() if name not in (*FIGURES, "schema")}
        result = checked(cls, rest, place=place, way_out=WAY_OUT)
        _check_figures(result, checked(StatedFigures, written, place=place, way_out=WAY_OUT), place)
        return result

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a ``result.json``, or the one in the folder of a run."""
        file = Path(path) / "result.json" if Path(path).is_dir() else Path(path)
        return cls.from_dict(read_json(file, way_out=WAY_OUT), place=file)


FIGURES = tuple(f.name for f in dataclasses.fields(StatedFigures))


def _check_figures(result: Result, written: StatedFigures, place: str | Path) -> None:
    for name in FIGURES:
        stated, true = getattr(written, name), getattr(result, name)
        if not math.isclose(stated, true, abs_tol=1e-9):
            raise FormatError(
                f"{place} contradicts itself: {name} is {stated!r}, its accuracy matrix gives "
                f"{true}; {WAY_OUT}"
            )
