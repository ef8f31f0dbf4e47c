"""A split too large for memory: it holds file names and decodes pictures on demand."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from nscl.data.errors import DataError
from nscl.data.inputs import join
from nscl.data.readers.pictures import decode_picture
from nscl.data.tasks import Split


def available_cpus() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def decode_files(files: Sequence[Path], size: tuple[int, int], *, threads: int = 0) -> Tensor:
    """Decode pictures to ``uint8 [N, 3, height, width]``; 0 threads means one per processor."""
    images = np.empty((len(files), 3, *size), dtype=np.uint8)

    def decode(row: int) -> None:
        images[row] = decode_picture(files[row], name=files[row], size=size)

    # Threads, not processes: pillow decodes and scales without holding the interpreter's lock.
    with ThreadPoolExecutor(threads or available_cpus()) as pool:
        for _ in pool.map(decode, range(len(files))):
            continue
    return torch.from_numpy(images)


class FileSplit(Split):
    """A `Split` whose pictures stay in their files until `gather` decodes them."""

    files: tuple[Path, ...]
    size: tuple[int, int]

    def __init__(self, files: Sequence[Path], labels: Tensor, *, size: tuple[int, int]) -> None:
        if labels.dtype != torch.int64 or labels.shape != (len(files),):
            raise DataError(f"labels must be int64 [{len(files)}], not {list(labels.shape)}")
        # The base class is frozen: this is how a frozen dataclass sets its own fields.
        object.__setattr__(self, "files", tuple(files))
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "size", size)

    @property
    def images(self) -> Tensor:
        """Raise an error: these pictures are not in memory because they do not fit."""
        raise DataError(
            f"{len(self.files):,} pictures ({self.bytes / 2**20:,.0f} MiB) are not in memory; "
            "raise max_bytes to load them, or use gather() and Batches, which decode as they go"
        )

    @property
    def in_memory(self) -> bool:
        """Return False: every `gather` decodes."""
        return False

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Return (3, height, width)."""
        return 3, *self.size

    def gather(self, indices: Tensor) -> Tensor:
        """Decode the pictures at these indices."""
        return decode_files([self.files[row] for row in indices.tolist()], self.size)

    def select(self, indices: Tensor) -> "FileSplit":
        """Return a split of these files only, still not decoded."""
        files = [self.files[row] for row in indices.tolist()]
        return FileSplit(files, self.labels[indices], size=self.size)

    def relabelled(self, labels: Tensor) -> "FileSplit":
        """Return the same files under other labels, still not decoded."""
        return FileSplit(self.files, labels, size=self.size)

    def to(self, device: torch.device | str) -> "FileSplit":
        """Return the split itself; other devices are an error, as only batches are moved."""
        if torch.device(device).type == "cpu":
            return self
        raise DataError(f"pictures that are decoded while training cannot be moved to {device}")

    def gather_each(self, rows: Sequence[Tensor], *, workers: int) -> Iterator[Tensor]:
        """Decode one batch after another, ahead of time in ``workers`` processes."""
        processes = min(workers, available_cpus())
        loader: DataLoader[Tensor | DataError] = DataLoader(
            _Chunks(self, rows),
            batch_size=None,
            num_workers=processes,
            # Its own generator: a loader without one draws from torch's global one.
            generator=torch.Generator(),
        )
        for images in loader:
            if isinstance(images, DataError):
                raise images
            yield images


def joined(splits: Sequence[Split], labels: Tensor) -> Split:
    """Return splits of one stream as one, under other labels; pictures in files stay there."""
    lazy = [split for split in splits if isinstance(split, FileSplit)]
    if lazy and len(lazy) == len(splits):
        files = [file for split in lazy for file in split.files]
        return FileSplit(files, labels, size=lazy[0].size)
    return splits[0].holding(join([split.inputs for split in splits]), labels)


class _Chunks(Dataset["Tensor | DataError"]):
    """Item i is the i-th batch, decoded in one thread; an error is returned, not raised."""

    def __init__(self, split: FileSplit, rows: Sequence[Tensor]) -> None:
        self.split, self.rows = split, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Tensor | DataError:
        files = [self.split.files[row] for row in self.rows[index].tolist()]
        try:
            return decode_files(files, self.split.size, threads=1)
        except DataError as error:
            return error
