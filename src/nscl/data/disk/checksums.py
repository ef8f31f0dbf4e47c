"""Check a published file by its MD5 or SHA-256 once, and remember the result.

Hashing CIFAR-100 takes most of a second, so a verified (path, size, mtime) is noted in the user's
cache; a file that changes in size or time is hashed again.
"""

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Literal

from nscl.data.disk.cache import cache_file
from nscl.data.errors import CorruptDataError
from nscl.user_cache import cache_dir

Algorithm = Literal["MD5", "SHA-256"]


def algorithm_of(checksum: str) -> Algorithm:
    """Recognise by its length which of the two a checksum is.

    >>> algorithm_of("0" * 32), algorithm_of("0" * 64)
    ('MD5', 'SHA-256')
    """
    return "MD5" if len(checksum) == 32 else "SHA-256"


def checksum_of(path: Path, algorithm: Algorithm) -> str:
    """Return the checksum of a file as hexadecimal digits, read in blocks."""
    # MD5 detects accidents, not attacks; it is what publishers of images give.
    name = "md5" if algorithm == "MD5" else "sha256"
    with path.open("rb") as file:
        return hashlib.file_digest(
            file, lambda: hashlib.new(name, usedforsecurity=False)
        ).hexdigest()


def is_intact(path: Path, checksum: str) -> bool:
    """Whether ``path`` has this checksum; not computed again if the file has not changed."""
    note, facts = _note_of(path), _facts_of(path, checksum)
    if _read(note) == facts:
        return True
    if checksum_of(path, algorithm_of(checksum)) != checksum:
        return False
    # A cache that cannot be written only costs time.
    with contextlib.suppress(OSError), cache_file(note) as file:
        file.write(json.dumps(facts).encode())
    return True


def verify(path: Path, checksum: str, *, remedy: str) -> None:
    """Raise `CorruptDataError` unless ``path`` has this checksum; ``remedy`` ends the message."""
    if not is_intact(path, checksum):
        size = path.stat().st_size
        raise CorruptDataError(
            f"{path} is corrupt: its {size:,} bytes do not have the published "
            f"{algorithm_of(checksum)} {checksum}; {remedy}"
        )


def _note_of(path: Path) -> Path:
    key = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:32]
    return cache_dir() / "verified" / f"{key}.json"


def _facts_of(path: Path, checksum: str) -> dict[str, object]:
    stat = path.stat()
    return {
        "path": str(path.resolve()),
        "size": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "checksum": checksum,
    }


def _read(note: Path) -> object:
    try:
        return json.loads(note.read_bytes())
    except (OSError, ValueError):
        return None
