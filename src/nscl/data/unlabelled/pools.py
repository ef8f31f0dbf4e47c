"""Unlabelled pools: images outside all tasks, for methods that learn from unlabelled images.

A pool must not share images with the benchmark, which is checked. Results carry the pool's name.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nscl.data.catalogue import BENCHMARKS, FOLDER_PREFIX, find_dataset
from nscl.data.disk.canonical import DATASETS
from nscl.data.disk.locate import data_roots, locate
from nscl.data.errors import DataError, DataNotFoundError
from nscl.data.images.files import decode_files
from nscl.data.images.resize import adapt, recolour
from nscl.data.notices import Notify, log_notice
from nscl.data.opening import load_dataset
from nscl.data.readers.pictures import picture_files
from nscl.data.readers.raw import Pixels
from nscl.data.tasks import TaskStream
from nscl.data.unlabelled.disjoint import LOOKED_FOR, lies_in_stream, same_place, shared_images
from nscl.data.unlabelled.procedural import procedural_images

DEFAULT_POOL_SIZE = 50_000

# Replacements for the withdrawn 80M TinyImages, best first; "+" joins several data sets.
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
    """Open at most ``size`` unlabelled images, in the image shape of ``like``.

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
        return _folder_pool(chosen, like, size, generator, data_dir)
    names = tuple(find_dataset(part).name for part in chosen.split("+"))
    if texts := [name for name in names if not DATASETS[name].mean]:
        raise DataError(f"{texts[0]} cannot be an unlabelled pool: it has texts, not pictures")
    for name in names:
        if name == _dataset_of(like.name):
            raise _same(name, like, "it is the benchmark's own data set")
        if (place := _place_of(name, data_dir)) and lies_in_stream(place, like.name):
            raise _same(name, like, f"its pictures in {place} are the stream's own")
    parts = [load_dataset(name, data_dir=data_dir, notify=notify).train_images for name in names]
    share = -(-size // len(parts))
    drawn = [
        _some(part, share, like, name, generator) for name, part in zip(names, parts, strict=True)
    ]
    return UnlabelledPool(_named("+".join(names), like), torch.cat(drawn)[:size])


def _some(
    images: Pixels, count: int, like: TaskStream, name: str, generator: torch.Generator
) -> Tensor:
    """Draw and convert images; the user's own stream is compared with them first."""
    foreign = bool(_dataset_of(like.name))
    rows = torch.randperm(len(images), generator=generator)
    # Runs open a pool of one image before training to see whether it works. Shared images must be
    # found then, not after hours of training.
    rows = rows[: count if foreign else max(count, LOOKED_FOR)]
    drawn = adapt(torch.from_numpy(images[rows.numpy()]), like.image_shape)
    if not foreign:
        _refuse_shared(drawn, name, like)
    return drawn[:count]


def _refuse_shared(images: Tensor, name: str, like: TaskStream) -> None:
    if found := shared_images(images, like):
        raise _same(name, like, f"{found:,} of {len(images):,} images are the stream's own")


def _same(name: str, like: TaskStream, reason: str) -> DataError:
    return DataError(
        f"{name} cannot be the unlabelled pool of {like.name}: {reason}; choose another pool "
        "(--method.pool), for example procedural"
    )


def choose_pool(benchmark: str, data_dir: str | os.PathLike[str] | None = None) -> str:
    """The pool that ``auto`` stands for, given the data on this disk."""
    for candidate in PREFERENCES[_dataset_of(benchmark)]:
        places = {name: _place_of(name, data_dir) for name in candidate.split("+")}
        present = [
            name for name, place in places.items() if place and not lies_in_stream(place, benchmark)
        ]
        if present:
            return "+".join(present)
    return "procedural"


def _place_of(name: str, data_dir: str | os.PathLike[str] | None) -> Path | None:
    """The path of a data set; None if it is not on disk, or comes with a package."""
    found = locate(DATASETS[name], data_roots(data_dir))
    return None if found is None else found.path


def _dataset_of(benchmark: str) -> str:
    entry = BENCHMARKS.get(benchmark)
    return entry.dataset if entry is not None else ""


def _folder_pool(
    spec: str,
    like: TaskStream,
    size: int,
    generator: torch.Generator,
    data_dir: str | os.PathLike[str] | None,
) -> UnlabelledPool:
    path = Path(spec.removeprefix(FOLDER_PREFIX)).expanduser()
    files = picture_files(path) if path.is_dir() else []
    if not files:
        raise DataNotFoundError(f"{path} is not a folder with pictures")
    own = _place_of(dataset, data_dir) if (dataset := _dataset_of(like.name)) else None
    if lies_in_stream(path, like.name) or (own and same_place(path, own)):
        raise _same(spec, like, "same pictures")
    rows = torch.randperm(len(files), generator=generator)[: max(size, LOOKED_FOR)].tolist()
    channels, height, width = like.image_shape
    images = decode_files([files[row] for row in rows], (height, width))
    images = recolour(images, channels)
    _refuse_shared(images, spec, like)
    return UnlabelledPool(_named(spec, like), images[:size])


def _named(source: str, like: TaskStream) -> str:
    _, height, width = like.image_shape
    return f"{source}@{height}x{width}"
