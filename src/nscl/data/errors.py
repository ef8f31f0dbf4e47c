"""Errors about data. Each message is one line: the file, the problem and what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nscl.errors import NsclError


class DataError(NsclError, ValueError):
    """The data, or the request for them, cannot be used as they are."""


class UnknownBenchmarkError(DataError):
    """No benchmark or data set of that name; the message suggests the nearest."""


class DataNotFoundError(DataError):
    """The files of a benchmark were not found in any folder that was searched."""


class CorruptDataError(DataError):
    """A file has the wrong content: truncated, altered, unsafe to load or not decodable."""


class FetchError(DataError):
    """A download failed; the bytes received so far stay on disk, the next try continues there."""


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Turn an ``OSError`` inside the block into a `DataError` that names ``path``."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise DataError(f"{where} cannot be read ({error.strerror or error})") from None
