"""Files that are there whole or not at all: temporary neighbour, fsync, rename.

A reader, or a process that starts after a power cut, sees the old file or the new one, never half
of either. The temporary file lies in the same folder because a rename is atomic only within one
file system.
"""

import errno
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from nscl.results.errors import FormatError, WriteError

LEFTOVER_PREFIX = ".nscl-tmp-"


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """Open a binary file that takes the place of ``path`` when the block ends without an exception.

    For writers that stream, such as checkpoints; for everything else there is ``write_bytes``.
    """
    target = Path(path)
    temporary = target.parent / f"{LEFTOVER_PREFIX}{secrets.token_hex(8)}"
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        sync_folder(target.parent)
    except WriteError:
        raise
    except OSError as error:
        raise cannot_write(target, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write ``data`` to ``path``, atomically."""
    with replacing(path) as file:
        file.write(data)


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` to ``path`` as UTF-8, atomically."""
    write_bytes(path, text.encode())


def write_json(path: str | Path, value: Any) -> None:
    """Write ``value`` to ``path`` as indented standard JSON, atomically; NaN is refused."""
    write_text(path, to_json(value, path=path, indent=2) + "\n")


def to_json(value: Any, *, path: str | Path, indent: int | None = None) -> str:
    """Return ``value`` as standard JSON, or say which file would have held what is none."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise FormatError(f"cannot write {path}: not standard JSON ({error})") from error


def remove_leftovers(folder: str | Path) -> list[Path]:
    """Delete temporary files of killed writers; safe only while no other writer is there."""
    leftovers = sorted(Path(folder).glob(f"{LEFTOVER_PREFIX}*"))
    for leftover in leftovers:
        leftover.unlink(missing_ok=True)
    return leftovers


def cannot_write(path: Path, error: OSError) -> WriteError:
    """Name the file and the reason; the promise in the text is what ``replacing`` keeps."""
    reason = error.strerror or str(error)
    return WriteError(
        f"cannot write {path}: {reason}; nothing half-written is left, "
        "make room or choose another folder"
    )


def sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network and FUSE file systems cannot sync a folder; the rename itself has been made.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
