"""What can be wrong with data, each error one line that names the file and the way out."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nscl.errors import NsclError


class DataError(NsclError, ValueError):
    """Data or a request about data that cannot be used as it is."""


class UnknownBenchmarkError(DataError):
    """No benchmark or data set of that name; the message suggests the nearest."""


class MissingDataError(DataError):
    """The files of a benchmark are nowhere that was looked."""


class CorruptDataError(DataError):
    """A file is not what it should be: truncated, altered, hostile or not decodable."""


class FetchError(DataError):
    """A download could not be finished; what arrived so far is kept where it can be continued."""


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Turn what the operating system refuses in the block into a `DataError` naming ``path``."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise DataError(f"{where} cannot be read ({error.strerror or error})") from None
