"""One line of ``metrics.jsonl``: the fields that readers rely on, and reading all lines.

A record has a ``kind``. "epoch" and "task" records need the fields below and may have more. Other
kinds belong to newer versions and are passed on unchecked.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from nscl.results.errors import FormatError
from nscl.results.records.reading import parse_object
from nscl.results.records.record import Count, Number, Seconds, checked

WAY_OUT = "restore the file, or move the run's folder away and start the run again"


class MetricsRecord(BaseModel):
    """Any record."""

    model_config = ConfigDict(extra="allow")
    kind: str = Field(strict=True)


class EpochRecord(MetricsRecord):
    """Written after every epoch."""

    task: Count
    phase: str = Field(strict=True)
    steps: Count
    seconds: Seconds
    old_losses: list[Number] = Field(default_factory=list)


class TaskRecord(MetricsRecord):
    """Written after every task; the accuracy matrix checks the accuracies themselves."""

    task: Count
    accuracies: list[Any]
    seconds: Seconds
    remarks: list[str] = Field(default_factory=list)


KINDS: dict[str, type[MetricsRecord]] = {"epoch": EpochRecord, "task": TaskRecord}


def parse_line(line: bytes, *, place: str) -> dict[str, Any]:
    """Return the record in one line of the file, or say in one line what is wrong with it."""
    values = parse_object(line, place=place, way_out=WAY_OUT)
    kind = KINDS.get(str(values.get("kind")), MetricsRecord)
    checked(kind, values, place=place, way_out=WAY_OUT)
    return values


def read_metrics(path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a run that may still be going on, oldest first.

    A last line without its newline is half written, or still being written: it is left out.
    """
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.endswith(b"\n"):
                    yield parse_line(line, place=f"{path} line {number}")
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror or error}") from error
