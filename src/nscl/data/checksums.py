"""Check a canonical file's MD5 once, and remember that it was right.

Hashing CIFAR-100 takes most of a second, so a verified (path, size, mtime) is noted in the user's
cache; a file that changes in size or time is hashed again.
"""

import contextlib
import hashlib
import json
from pathlib import Path

from nscl.data.cache import cache_dir, write_atomically
from nscl.data.errors import CorruptDataError


def md5_of(path: Path) -> str:
    """Return the MD5 of a file as hexadecimal digits, read in blocks."""
    with path.open("rb") as file:
        # MD5 guards against accidents here; it is what the publishers of the data sets state.
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def is_intact(path: Path, md5: str) -> bool:
    """Say whether ``path`` has this MD5, from memory if the file has not changed since."""
    note, facts = _note_of(path), _facts_of(path, md5)
    if _read(note) == facts:
        return True
    if md5_of(path) != md5:
        return False
    with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
        write_atomically(note, lambda file: file.write(json.dumps(facts).encode()))
    return True


def verify(path: Path, md5: str, *, remedy: str) -> None:
    """Raise `CorruptDataError` unless ``path`` has this MD5; ``remedy`` ends the message."""
    if not is_intact(path, md5):
        size = path.stat().st_size
        raise CorruptDataError(
            f"{path} is corrupt: its {size:,} bytes do not have the published MD5 {md5}; {remedy}"
        )


def _note_of(path: Path) -> Path:
    key = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:32]
    return cache_dir() / "verified" / f"{key}.json"


def _facts_of(path: Path, md5: str) -> dict[str, object]:
    stat = path.stat()
    return {
        "path": str(path.resolve()),
        "size": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "md5": md5,
    }


def _read(note: Path) -> object:
    try:
        return json.loads(note.read_bytes())
    except (OSError, ValueError):
        return None
