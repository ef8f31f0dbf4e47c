"""Files that are complete or absent: temporary neighbour, fsync, rename.

A reader, or a process that starts after a power cut, sees the old file or the new one, never a
part of either. The temporary file is in the same folder, because a rename is atomic only within
one file system. Standard library only; errors are plain OSErrors.
"""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

LEFTOVER_PREFIX = ".nscl-tmp-"


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """Open a binary file that replaces ``path`` when the block ends without an exception."""
    with replacing_path(path) as temporary, temporary.open("xb") as file:
        yield file
        file.flush()
        # On the descriptor that wrote: only there is a failed write certain to be reported.
        os.fsync(file.fileno())


@contextmanager
def replacing_path(path: str | Path) -> Iterator[Path]:
    """Like ``replacing``, for writers that want the name of a file: it does not exist yet."""
    target = Path(path)
    temporary = target.parent / f"{LEFTOVER_PREFIX}{secrets.token_hex(8)}"
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(target)
        sync_folder(target.parent)
    finally:
        with suppress(OSError):
            temporary.unlink()


def remove_leftovers(folder: str | Path) -> list[Path]:
    """Delete temporary files of killed writers; safe only while no other writer is there."""
    leftovers = sorted(Path(folder).glob(f"{LEFTOVER_PREFIX}*"))
    for leftover in leftovers:
        leftover.unlink(missing_ok=True)
    return leftovers


def sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` survive a power cut."""
    try:
        _sync(folder)
    except OSError as error:
        # Some network and FUSE file systems cannot sync a folder, and a folder that may be written
        # need not be readable. The rename itself has been made.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):
            raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
