"""Tables of texts: CSV, TSV or JSON lines with a text and a label in every row, maybe a task.

Whatever cannot be read is an error that names the file and the line.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nscl.data.errors import CorruptDataError, DataError, reading

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json")


@dataclass(frozen=True)
class Row:
    """One text; ``line`` is where its row begins."""

    text: str
    label: str
    task: str
    line: int


def read_table(path: Path, *, label: str = "label") -> list[Row]:
    """Read the columns ``text``, ``label`` (or another name for it) and, if there is one, ``task``.

    Other columns are ignored. Without a task column every row's task is "".
    """
    with reading(path):
        text = _decoded(path)
    records = _json_lines(text, path) if path.suffix.startswith(".json") else _csv(text, path)
    rows = [_row(record, line, path, label) for line, record in records]
    if not rows:
        raise DataError(f"{path} has no rows")
    without = [row.line for row in rows if not row.task]
    if 0 < len(without) < len(rows):
        raise DataError(f"{path}, line {without[0]}: no task, which other rows have")
    return rows


def _decoded(path: Path) -> str:
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise CorruptDataError(f"{path}, line {line}: not UTF-8 ({problem.reason})") from None


def _csv(text: str, path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    delimiter = "\t" if path.suffix == ".tsv" else ","
    lines = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
    header: list[str] | None = None
    line = 1
    try:
        for fields in lines:
            if header is None:
                header = [name.strip() for name in fields]
            elif fields:  # an empty line is no row
                _check_width(fields, header, path, line)
                yield line, dict(zip(header, fields, strict=True))
            line = lines.line_num + 1
    except csv.Error as problem:
        raise CorruptDataError(f"{path}, line {line}: not a row of CSV ({problem})") from None


def _check_width(fields: list[str], header: list[str], path: Path, line: int) -> None:
    if len(fields) != len(header):
        raise CorruptDataError(
            f"{path}, line {line}: {len(fields)} fields where the header has {len(header)} "
            f"({', '.join(header)}); quote a text that has commas in it"
        )


def _json_lines(text: str, path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        try:
            record = json.loads(content)
        except ValueError as problem:
            raise CorruptDataError(f"{path}, line {line}: not JSON ({problem})") from None
        if not isinstance(record, dict):
            raise CorruptDataError(f"{path}, line {line}: not an object with text and label")
        yield line, record


def _row(record: Mapping[str, Any], line: int, path: Path, label: str) -> Row:
    text, name = (_field(record, column, line, path) for column in ("text", label))
    task = record.get("task")
    return Row(text, name, "" if task is None else str(task).strip(), line)


def _field(record: Mapping[str, Any], name: str, line: int, path: Path) -> str:
    value = record.get(name)
    if name not in record:
        raise DataError(
            f"{path}, line {line}: no {name!r}; it has {', '.join(record) or 'nothing'}"
        )
    if not isinstance(value, str | int) or not str(value).strip():
        raise DataError(f"{path}, line {line}: {name!r} is empty or not a text ({value!r})")
    return str(value).strip()
