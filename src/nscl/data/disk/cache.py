"""The user's cache folder, and files that appear in it complete or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from platformdirs import user_cache_path

from nscl.atomic import replacing


def cache_dir() -> Path:
    """Return the user's cache folder of nscl, which need not exist yet.

    On Linux ``$XDG_CACHE_HOME/nscl``, or ``~/.cache/nscl``.
    """
    return user_cache_path("nscl", appauthor=False)


@contextmanager
def cache_file(path: Path) -> Iterator[BinaryIO]:
    """Open a binary file that replaces ``path`` at the end of the block; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        yield file
