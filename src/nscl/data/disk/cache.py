"""Files in the user's cache folder: they appear complete or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from nscl.atomic import replacing


@contextmanager
def cache_file(path: Path) -> Iterator[BinaryIO]:
    """Open a binary file that replaces ``path`` at the end of the block; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        yield file
