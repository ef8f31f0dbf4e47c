"""Store decoded pictures of a public data set in the user's cache, so that it is decoded once.

One ``.npz`` per source, keyed by the source's path, size and time; written atomically and read
without pickle. If the cache cannot be written, decoding is repeated; if it cannot be read, it is
written again.
"""

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from nscl.data.disk.cache import cache_file
from nscl.data.notices import Notify, log_notice
from nscl.data.readers.raw import RawDataset
from nscl.user_cache import cache_dir

_VERSION = 1


def read_decoded(
    source: Path, read: Callable[[Path], RawDataset], *, notify: Notify = log_notice
) -> RawDataset:
    """Return ``read(source)``, from the cache if the source has not changed since."""
    path, fingerprint = _cache_path(source), _fingerprint(source)
    cached = _load(path, fingerprint)
    if cached is not None:
        return cached
    notify(f"decoding the pictures in {source}, once; they will be stored in {path}")
    dataset = read(source)
    try:
        arrays = _arrays(dataset, fingerprint)
        with cache_file(path) as file:
            np.savez(file, allow_pickle=False, **arrays)
    except OSError as error:
        notify(f"the decoded pictures could not be stored in {path} ({error}); continuing without")
    return dataset


def _cache_path(source: Path) -> Path:
    key = hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:16]
    return cache_dir() / "decoded" / f"{source.name.split('.')[0]}-{key}.npz"


def _fingerprint(source: Path) -> str:
    """Describe the source by sizes and times; a folder by those of all its files."""
    if source.is_file():
        stat = source.stat()
        return f"{_VERSION} file {stat.st_size} {stat.st_mtime_ns}"
    stats = [path.stat() for path in source.rglob("*") if path.is_file()]
    size, newest = sum(s.st_size for s in stats), max((s.st_mtime_ns for s in stats), default=0)
    return f"{_VERSION} folder {len(stats)} {size} {newest}"


def _arrays(dataset: RawDataset, fingerprint: str) -> dict[str, np.ndarray]:
    return {
        "fingerprint": np.array(fingerprint),
        "train_images": dataset.train_images,
        "train_labels": dataset.train_labels,
        "test_images": dataset.test_images,
        "test_labels": dataset.test_labels,
        "class_names": np.array(dataset.class_names),
        "note": np.array(dataset.note),
    }


def _load(path: Path, fingerprint: str) -> RawDataset | None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if str(arrays["fingerprint"]) != fingerprint:
                return None
            return RawDataset(
                arrays["train_images"],
                arrays["train_labels"],
                arrays["test_images"],
                arrays["test_labels"],
                tuple(arrays["class_names"].tolist()),
                str(arrays["note"]),
            )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
