"""Reading JSON objects that other processes, versions or people may have left half done."""

import json
from pathlib import Path
from typing import Any

from nscl.results.errors import FormatError


def read_json(path: str | Path) -> dict[str, Any]:
    """Read the JSON object in ``path``; anything else is a FormatError that names the file."""
    try:
        value = json.loads(Path(path).read_bytes())
    except FileNotFoundError:
        raise FormatError(f"{path} is not there") from None
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise FormatError(f"{path} is truncated or not JSON: {error}") from error
    if not isinstance(value, dict):
        raise FormatError(f"{path} is not a JSON object but a {type(value).__name__}")
    return value


def check_schema(record: dict[str, Any], *, known: int, path: str | Path) -> None:
    """Refuse a record without a schema number, or with one this version does not know yet."""
    schema = record.get("schema")
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        raise FormatError(f"{path} was not written by nscl: its schema is {schema!r}")
    if schema > known:
        raise FormatError(
            f"{path} was written by a newer nscl (schema {schema}, this one reads up to {known}): "
            "update nscl"
        )
