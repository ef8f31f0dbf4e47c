"""CIFAR-10 and CIFAR-100 from their Python pickles, in a folder or in the published tar.gz."""

import io
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nscl.data.errors import CorruptDataError
from nscl.data.readers.pickles import load_arrays
from nscl.data.readers.raw import Labels, Pixels, RawDataset

Unpickled = dict[str, object]


@dataclass(frozen=True)
class _Layout:
    train: tuple[str, ...]
    test: str
    meta: str
    labels: str
    names: str
    classes: int


_CIFAR10 = _Layout(
    tuple(f"data_batch_{i}" for i in range(1, 6)),
    "test_batch",
    "batches.meta",
    "labels",
    "label_names",
    10,
)
_CIFAR100 = _Layout(("train",), "test", "meta", "fine_labels", "fine_label_names", 100)


def read_cifar10(path: Path) -> RawDataset:
    """Read CIFAR-10 from the folder ``cifar-10-batches-py`` or its tar.gz."""
    return _read(path, _CIFAR10)


def read_cifar100(path: Path) -> RawDataset:
    """Read CIFAR-100 with its 100 fine classes from ``cifar-100-python`` or its tar.gz."""
    return _read(path, _CIFAR100)


def _read(path: Path, layout: _Layout) -> RawDataset:
    load = _from_folder(path) if path.is_dir() else _from_archive(path, layout)
    train = [_images_of(load(name), f"{path}/{name}", layout) for name in layout.train]
    test = _images_of(load(layout.test), f"{path}/{layout.test}", layout)
    # One file needs no copy: CIFAR-100's is 150 MB.
    images = train[0][0] if len(train) == 1 else np.concatenate([part for part, _ in train])
    labels = np.concatenate([part for _, part in train])
    return RawDataset(images, labels, *test, _names_of(load(layout.meta), path, layout))


def _from_folder(folder: Path) -> Callable[[str], Unpickled]:
    def load(name: str) -> Unpickled:
        with (folder / name).open("rb") as file:
            return load_arrays(file, folder / name)

    return load


def _from_archive(path: Path, layout: _Layout) -> Callable[[str], Unpickled]:
    wanted = {*layout.train, layout.test, layout.meta}
    members: dict[str, bytes] = {}
    try:
        # One pass: going back in a gzip stream means decompressing it again.
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                name = Path(member.name).name
                file = archive.extractfile(member) if name in wanted and member.isfile() else None
                if file is not None:
                    members[name] = file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise CorruptDataError(f"{path} is truncated or not a tar archive ({error})") from None
    if lacking := sorted(wanted - members.keys()):
        raise CorruptDataError(f"{path} lacks {', '.join(lacking)}")
    return lambda name: load_arrays(io.BytesIO(members.pop(name)), f"{path}/{name}")


def _images_of(batch: Unpickled, where: str, layout: _Layout) -> tuple[Pixels, Labels]:
    data, labels = batch.get("data"), batch.get(layout.labels)
    if not (isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 2):
        raise CorruptDataError(f"{where} has no uint8 array 'data'")
    if data.shape[1] != 3 * 32 * 32:
        raise CorruptDataError(f"{where} has rows of {data.shape[1]} values instead of 3072")
    targets = np.asarray(labels if isinstance(labels, list) else [], dtype=np.int64)
    if len(targets) != len(data) or not np.isin(targets, range(layout.classes)).all():
        raise CorruptDataError(
            f"{where} has no {len(data)} labels {layout.labels!r} in 0..{layout.classes - 1}"
        )
    return data.reshape(-1, 3, 32, 32), targets


def _names_of(batch: Unpickled, path: Path, layout: _Layout) -> tuple[str, ...]:
    names = batch.get(layout.names)
    if not isinstance(names, list) or len(names) != layout.classes:
        raise CorruptDataError(f"{path}/{layout.meta} has no {layout.classes} {layout.names!r}")
    return tuple(
        name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in names
    )
