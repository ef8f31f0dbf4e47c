"""Which files of a benchmark are on disk, and download the rest: ``nscl data check|fetch``."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nscl.data.catalogue import find_dataset, is_own
from nscl.data.disk.canonical import Dataset
from nscl.data.disk.checksums import is_intact
from nscl.data.disk.download import Progress, download, no_progress
from nscl.data.disk.locate import Located, data_roots, locate, partial_forms
from nscl.data.errors import DataError

FileState = Literal["verified", "found", "corrupt", "missing"]
DatasetState = Literal["embedded", "verified", "found", "corrupt", "missing"]


@dataclass(frozen=True)
class FileStatus:
    """One file: "found" means that it is there and that no checksum of it is published."""

    path: str
    state: FileState


@dataclass(frozen=True)
class DataStatus:
    """A data set's state: that of its worst file, or "embedded" where it needs none.

    ``path`` is where it was found; ``looked_in`` are the folders searched; ``hints`` name folders
    that hold only some of the files; ``download_bytes`` is what fetching it would transfer.
    """

    name: str
    dataset: str
    title: str
    state: DatasetState
    path: str | None
    files: tuple[FileStatus, ...]
    looked_in: tuple[str, ...]
    hints: tuple[str, ...] = ()
    download_bytes: int = 0

    @property
    def ready(self) -> bool:
        """True if the benchmark can be opened."""
        return self.state in ("embedded", "verified", "found")


def check(name: str, data_dir: str | os.PathLike[str] | None = None) -> DataStatus:
    """Look for a benchmark's (or data set's) files and verify those with a published checksum.

    >>> check("split-digits-5").state
    'embedded'
    """
    return _status(name, _canonical(name), data_roots(data_dir))


def fetch(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    progress: Progress = no_progress,
    mirror: str | None = None,
) -> DataStatus:
    """Download what is missing or corrupt of a benchmark, and return its state afterwards.

    Into ``data_dir``, else ``$NSCL_DATA``, else the user's cache. What is there and intact is not
    fetched again. ``mirror`` is an address under which the files lie by their own names.
    """
    dataset = _canonical(name)
    roots = data_roots(data_dir)
    searched = roots[:1] if data_dir is not None else roots
    status = _status(name, dataset, searched)
    if status.ready:
        return status
    for item in dataset.downloads:
        target = roots[0] / item.path
        if target.is_file() and is_intact(target, item.checksum):
            continue
        url = item.url if mirror is None else f"{mirror.rstrip('/')}/{target.name}"
        download(url, target, checksum=item.checksum, progress=progress)
    return _fetched(name, dataset, searched)


def _fetched(name: str, dataset: Dataset, roots: tuple[Path, ...]) -> DataStatus:
    status = _status(name, dataset, roots)
    if not status.ready:
        bad = ", ".join(file.path for file in status.files if file.state == "corrupt")
        raise DataError(
            f"{dataset.title} was fetched, but {bad} is read before it and is corrupt; delete that"
        )
    return status


def _canonical(name: str) -> Dataset:
    if is_own(name):
        raise DataError(f"{name} is your own folder: there is nothing to check or fetch for it")
    return find_dataset(name)


def _status(name: str, dataset: Dataset, roots: tuple[Path, ...]) -> DataStatus:
    found = locate(dataset, roots)
    files = _files_of(dataset, found, roots)
    return DataStatus(
        name,
        dataset.name,
        dataset.title,
        _worst(files) if dataset.forms else "embedded",
        str(found.path) if found is not None else None,
        files,
        tuple(map(str, roots)),
        tuple(partial_forms(dataset, roots)) if found is None else (),
        sum(item.size for item in dataset.downloads),
    )


def _files_of(
    dataset: Dataset, found: Located | None, roots: tuple[Path, ...]
) -> tuple[FileStatus, ...]:
    if found is None:
        targets = (roots[0] / item.path for item in dataset.downloads)
        return tuple(FileStatus(str(path), "missing") for path in targets)
    return tuple(
        FileStatus(str(path), _file_state(path, checksum)) for path, checksum in found.files
    )


def _file_state(path: Path, checksum: str | None) -> FileState:
    if checksum is None:
        return "found"
    try:
        return "verified" if is_intact(path, checksum) else "corrupt"
    except OSError:  # a folder in its place, or no permission: it cannot be used either way
        return "corrupt"


def _worst(files: tuple[FileStatus, ...]) -> FileState:
    ranking: tuple[FileState, ...] = ("missing", "corrupt", "found", "verified")
    return min((file.state for file in files), key=ranking.index)
