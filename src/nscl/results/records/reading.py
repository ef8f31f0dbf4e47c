"""Reading JSON objects that other processes, versions or people may have left damaged."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nscl.results.errors import FormatError


def read_json(path: str | Path, *, way_out: str = "") -> dict[str, Any]:
    """Read the JSON object in ``path``; anything else is a FormatError that names the file."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise FormatError(f"{path} does not exist") from None
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror or error}") from error
    return parse_object(content, place=path, way_out=way_out)


def parse_object(content: bytes, *, place: str | Path, way_out: str = "") -> dict[str, Any]:
    """Parse one JSON object; anything else is a FormatError that names its place."""
    end = f"; {way_out}" if way_out else ""
    try:
        value = json.loads(content)
    except ValueError as error:
        raise FormatError(f"{place} is truncated or not JSON: {error}{end}") from error
    if not isinstance(value, dict):
        raise FormatError(f"{place} is not a JSON object but a {type(value).__name__}{end}")
    return value


def check_schema(values: Mapping[str, Any], *, known: int, path: str | Path) -> None:
    """Refuse a record without a schema number, or with one that this version does not know."""
    schema = values.get("schema")
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        raise FormatError(f"{path} was not written by nscl: its schema is {schema!r}")
    if schema > known:
        raise FormatError(
            f"{path} was written by a newer nscl (schema {schema}, this one reads up to {known}): "
            "update nscl"
        )
