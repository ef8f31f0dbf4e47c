"""``metrics.jsonl``: one JSON object per line, appended while a run goes on.

A line counts once its newline is written. Whatever a killed process left after the last newline is
ignored by the reader and cut off by the writer, so both agree on the records.

A run that is resumed keeps the lines that its checkpoint counts. They must be records: a damaged
one is an error. Lines after them are cut off unread, because their epochs are trained again.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Self

from nscl.results.errors import FormatError
from nscl.results.records.metrics_record import WAY_OUT, parse_line
from nscl.results.writing import cannot_write, to_json


class MetricsLog:
    """Append records to the file at ``path``, created when missing; close it or use ``with``.

    To continue a run exactly after its checkpoint, store ``records`` in the checkpoint (after
    ``sync``) and call ``truncate_to`` with that number when resuming.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        ends = _line_ends(self.path)
        self._cut(ends[-1] if ends else 0, records=len(ends))

    @property
    def records(self) -> int:
        """How many complete records the file holds."""
        return self._records

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record as one line, handed to the system before this returns."""
        line = to_json(dict(record), path=self.path).encode() + b"\n"
        try:
            self._write(line)
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(self._size)
            raise cannot_write(self.path, error) from error
        self._size += len(line)
        self._records += 1

    def sync(self) -> None:
        """Make every record survive a power cut; call it before a checkpoint counts on them."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def truncate_to(self, records: int) -> None:
        """Keep the first ``records`` records, each of which must be one; cut off the rest."""
        if not 0 <= records <= self._records:
            raise FormatError(
                f"{self.path} holds {self._records} records, the checkpoint counts {records}: "
                f"the file was shortened or belongs to another run; {WAY_OUT}"
            )
        with self.path.open("rb") as file:
            for number, line in enumerate(islice(file, records), start=1):
                parse_line(line, place=f"{self.path} line {number}")
        ends = _line_ends(self.path)[:records]
        self._cut(ends[-1] if ends else 0, records=records)
        self.sync()

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _cut(self, size: int, *, records: int) -> None:
        try:
            self._file.truncate(size)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self._size = size
        self._records = records

    def _write(self, line: bytes) -> None:
        # A nearly full disk takes part of a line without complaint and fails on the rest.
        while line:
            line = line[self._file.write(line) :]


def _line_ends(path: Path) -> list[int]:
    ends, position = [], 0
    with path.open("rb") as file:
        for line in file:
            position += len(line)
            if line.endswith(b"\n"):
                ends.append(position)
    return ends
