"""Download one file: continue where it broke off, check it, and only then put it into place."""

import contextlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

from nscl.data.disk.checksums import algorithm_of, checksum_of
from nscl.data.errors import FetchError

Progress = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes on disk so far, and the total where it is known."""

_BLOCK = 1 << 18
_TIMEOUT = 30.0
_NETWORK = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)


class _BrokeOffError(Exception):
    """The connection ended early; what arrived is in the part file."""


def no_progress(name: str, done: int, total: int | None) -> None:
    """Show nothing."""


def download(
    url: str,
    target: Path,
    *,
    checksum: str,
    progress: Progress = no_progress,
    attempts: int = 4,
    pause: float = 1.0,
) -> None:
    """Download ``url`` to ``target``; with a wrong checksum there is an error and no file.

    Bytes are collected in ``target`` + ".part". A connection that breaks off is continued from
    there (HTTP Range), here up to ``attempts`` times and by the next call after that. A server
    without Range support is read from the start again.
    """
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        continued = _size(part) > 0
        _collect(url, part, progress, attempts, pause)
        if continued and checksum_of(part, algorithm_of(checksum)) != checksum:
            # The bytes of the earlier try may be wrong: judge the server by a complete download.
            part.unlink()
            _collect(url, part, progress, attempts, pause)
        _accept(url, part, target, checksum)
    except OSError as error:
        raise FetchError(f"{target} cannot be written ({error})") from None


def _accept(url: str, part: Path, target: Path, checksum: str) -> None:
    algorithm = algorithm_of(checksum)
    found = checksum_of(part, algorithm)
    if found != checksum:
        size = _size(part)
        part.unlink()
        raise FetchError(
            f"{url} sent {size:,} bytes with {algorithm} {found} instead of {checksum}; nothing "
            "was saved; try again later or from another source"
        )
    part.replace(target)


def _collect(url: str, part: Path, progress: Progress, attempts: int, pause: float) -> None:
    for attempt in range(attempts):
        before = _size(part)
        try:
            _receive(url, part, progress)
            return
        except _NETWORK as error:
            if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                raise FetchError(f"{url} answered {error.code} {error.reason}") from None
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        except _BrokeOffError as error:
            reason = str(error)
        if attempt + 1 < attempts and _size(part) <= before:
            time.sleep(pause * 2**attempt)  # give a server that sent nothing some time
    kept = f"; {_size(part):,} bytes are saved, the same command continues" if _size(part) else ""
    raise FetchError(f"{url} could not be downloaded ({reason}){kept}")


def _receive(url: str, part: Path, progress: Progress) -> None:
    have = _size(part)
    headers = {"Range": f"bytes={have}-"} if have else {}
    request = urllib.request.Request(url, headers={"User-Agent": "nscl", **headers})
    try:
        with contextlib.closing(urllib.request.urlopen(request, timeout=_TIMEOUT)) as answer:
            response = cast("http.client.HTTPResponse", answer)
            start = have if _continues(response, have) else 0
            with part.open("ab" if start else "wb") as file:
                _copy(response, file, start, part.stem, progress)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        error.close()
        _check_complete(url, part, error, progress)


def _continues(response: http.client.HTTPResponse, have: int) -> bool:
    """Whether the answer starts where the part file ends; a plain 200 starts at zero."""
    content_range = response.headers.get("Content-Range", "")
    partial = response.status == http.HTTPStatus.PARTIAL_CONTENT
    return partial and content_range.startswith(f"bytes {have}-")


def _copy(
    response: http.client.HTTPResponse, file: BinaryIO, start: int, name: str, progress: Progress
) -> None:
    length = response.headers.get("Content-Length")
    total = start + int(length) if length is not None else None
    done = start
    progress(name, done, total)
    while block := _read_block(response):
        file.write(block)
        done += len(block)
        progress(name, done, total)
    file.flush()
    os.fsync(file.fileno())
    if total is not None and done < total:
        # http.client reports no error for a short body that is read in blocks.
        raise _BrokeOffError(f"the connection broke off after {done:,} of {total:,} bytes")


def _read_block(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_BLOCK)
    except (OSError, http.client.HTTPException) as error:
        # Kept apart from an OSError of the disk, where another try does not help.
        raise _BrokeOffError(str(error) or type(error).__name__) from None


def _check_complete(
    url: str, part: Path, error: urllib.error.HTTPError, progress: Progress
) -> None:
    """The server has nothing beyond the part file: it is complete, or of another file."""
    total = error.headers.get("Content-Range", "").rpartition("/")[2]
    if total != str(_size(part)):
        part.unlink()
        _receive(url, part, progress)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
