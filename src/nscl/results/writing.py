"""Writing the files of a run: atomically, as standard JSON, with errors that name the file."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from nscl import atomic
from nscl.results.errors import FormatError, WriteError


@contextmanager
def open_atomic(path: str | Path) -> Iterator[BinaryIO]:
    """Open a binary file that replaces ``path`` when the block ends without an exception.

    For writers that stream, such as checkpoints; otherwise use ``write_bytes``.
    """
    try:
        with atomic.replacing(path) as file:
            yield file
    except WriteError:
        raise
    except OSError as error:
        raise cannot_write(Path(path), error) from error


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write ``data`` to ``path``, atomically."""
    with open_atomic(path) as file:
        file.write(data)


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` to ``path`` as UTF-8, atomically."""
    write_bytes(path, text.encode())


def write_json(path: str | Path, value: Any) -> None:
    """Write ``value`` to ``path`` as indented standard JSON, atomically; NaN is refused."""
    write_text(path, to_json(value, path=path, indent=2) + "\n")


def to_json(value: Any, *, path: str | Path, indent: int | None = None) -> str:
    """Return ``value`` as standard JSON; the error for anything else names the file."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise FormatError(f"cannot write {path}: not standard JSON ({error})") from error


def make_folder(path: Path) -> None:
    """Make a folder and those above it, unless it is there already."""
    refuse_dangling_link(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def refuse_dangling_link(path: Path) -> None:
    """Name a link that leads nowhere: making a folder there would only say that it exists."""
    for place in (path, *path.parents):
        if place.is_symlink() and not place.exists():
            raise WriteError(
                f"{place} is a link to {place.readlink()}, which does not exist: create that "
                "folder or choose another one"
            )


def cannot_write(path: Path, error: OSError) -> WriteError:
    """Name the file and the reason; ``nscl.atomic`` keeps the promise in the text."""
    reason = error.strerror or str(error)
    return WriteError(
        f"cannot write {path}: {reason}; nothing half-written is left, "
        "make room or choose another folder"
    )
