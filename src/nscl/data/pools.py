"""Unlabelled pools: images that belong to no task, for the methods that learn from such.

A pool must share no image with the benchmark; its name stands beside every number made with it.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nscl.data.canonical import DATASETS
from nscl.data.catalogue import BENCHMARKS, FOLDER_PREFIX, find_dataset
from nscl.data.errors import DataError, MissingDataError
from nscl.data.files import decode_files
from nscl.data.locate import data_roots, locate
from nscl.data.notices import Notify, log_notice
from nscl.data.opening import load_dataset
from nscl.data.procedural import procedural_images
from nscl.data.readers.pictures import picture_files
from nscl.data.readers.raw import Pixels
from nscl.data.resize import adapt, recolour
from nscl.data.tasks import TaskStream

DEFAULT_POOL_SIZE = 50_000

# What stands in for the withdrawn 80M TinyImages, best first; names joined by "+" are put together.
PREFERENCES: dict[str, tuple[str, ...]] = {
    "cifar100": ("tinyimagenet", "cifar10"),
    "cifar10": ("tinyimagenet", "cifar100"),
    "tinyimagenet": ("cifar100+cifar10",),
    "digits": ("fashion-mnist", "cifar100", "cifar10", "tinyimagenet"),
    "fashion-mnist": ("tinyimagenet", "cifar100", "cifar10"),
    "": ("tinyimagenet", "cifar100", "cifar10", "fashion-mnist"),
}


@dataclass(frozen=True, eq=False)
class UnlabelledPool:
    """Images ``uint8 [N, C, H, W]`` in a benchmark's shape, and the name of their source."""

    name: str
    images: Tensor

    def __len__(self) -> int:
        return len(self.images)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw ``n`` images, without repetition as long as there are enough."""
        repeats = -(-n // len(self)) if n > 0 else 0
        rows = [torch.randperm(len(self), generator=generator) for _ in range(repeats)]
        return self.images[torch.cat(rows)[:n]] if rows else self.images[:0]


def open_pool(
    spec: str,
    *,
    like: TaskStream,
    size: int = DEFAULT_POOL_SIZE,
    data_dir: str | os.PathLike[str] | None = None,
    seed: int = 0,
    current: Tensor | None = None,
    notify: Notify = log_notice,
) -> UnlabelledPool:
    """Open at most ``size`` unlabelled images of the shape of ``like``'s.

    ``spec`` is a benchmark's or data set's name, ``folder:PATH`` (any pictures below PATH),
    ``procedural``, or ``auto``: the first of `PREFERENCES` that is on disk, else ``procedural``.
    ``current`` are images of the task being learned, from which the procedural pool makes some.

    >>> from nscl.data import open_stream
    >>> pool = open_pool("procedural", like=open_stream("split-digits-5"), size=100)
    >>> pool.name, pool.images.shape
    ('procedural', torch.Size([100, 1, 8, 8]))
    """
    if size < 1:
        raise DataError(f"a pool needs at least one image, not {size}")
    generator = torch.Generator().manual_seed(seed)
    chosen = choose_pool(like.name, data_dir) if spec == "auto" else spec
    if spec == "auto":
        notify(f"unlabelled pool for {like.name}: {chosen}")
    if chosen == "procedural":
        images = procedural_images(size, like.image_shape, generator=generator, current=current)
        return UnlabelledPool("procedural" if current is None else "procedural+current", images)
    if chosen.startswith(FOLDER_PREFIX):
        return _folder_pool(chosen, like, size, generator)
    names = tuple(find_dataset(part).name for part in chosen.split("+"))
    if (own := _dataset_of(like.name)) in names:
        raise DataError(f"{own} cannot be the unlabelled pool of {like.name}: same images")
    parts = [load_dataset(name, data_dir=data_dir, notify=notify).train_images for name in names]
    share = -(-size // len(parts))
    chosen_images = [_some(part, share, like.image_shape, generator) for part in parts]
    return UnlabelledPool(_named("+".join(names), like), torch.cat(chosen_images)[:size])


def _some(
    images: Pixels, count: int, shape: tuple[int, int, int], generator: torch.Generator
) -> Tensor:
    rows = torch.randperm(len(images), generator=generator)[:count]
    return adapt(torch.from_numpy(images[rows.numpy()]), shape)


def choose_pool(benchmark: str, data_dir: str | os.PathLike[str] | None = None) -> str:
    """What ``auto`` comes to for a benchmark, with the data that are on this disk."""
    roots = data_roots(data_dir)
    for candidate in PREFERENCES[_dataset_of(benchmark)]:
        parts = candidate.split("+")
        present = [name for name in parts if locate(DATASETS[name], roots) is not None]
        if present:
            return "+".join(present)
    return "procedural"


def _dataset_of(benchmark: str) -> str:
    entry = BENCHMARKS.get(benchmark)
    return entry.dataset if entry is not None else ""


def _folder_pool(
    spec: str, like: TaskStream, size: int, generator: torch.Generator
) -> UnlabelledPool:
    path = Path(spec.removeprefix(FOLDER_PREFIX)).expanduser()
    files = picture_files(path) if path.is_dir() else []
    if not files:
        raise MissingDataError(f"{path} is not a folder with pictures")
    if like.name.startswith(FOLDER_PREFIX):
        own = Path(like.name.removeprefix(FOLDER_PREFIX)).expanduser().resolve()
        if path.resolve().is_relative_to(own) or own.is_relative_to(path.resolve()):
            raise DataError(f"{spec} cannot be the unlabelled pool of {like.name}: same pictures")
    rows = torch.randperm(len(files), generator=generator)[:size].tolist()
    channels, height, width = like.image_shape
    images = decode_files([files[row] for row in rows], (height, width))
    return UnlabelledPool(_named(spec, like), recolour(images, channels))


def _named(source: str, like: TaskStream) -> str:
    _, height, width = like.image_shape
    return f"{source}@{height}x{width}"
