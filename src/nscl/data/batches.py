"""Batches of a split, shuffled, augmented and normalised, without a DataLoader's overhead.

>>> from nscl.data import open_stream
>>> stream = open_stream("split-digits-5")
>>> generator = torch.Generator().manual_seed(0)
>>> loader = Batches(stream[0].train, batch_size=64, mean=stream.mean, std=stream.std,
...                  generator=generator)
>>> images, labels = next(iter(loader))
>>> images.shape, images.dtype, labels.dtype
(torch.Size([64, 1, 8, 8]), torch.float32, torch.int64)
"""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from nscl.data.augment import apply_crop_flip, draw_crop_flip, normalise
from nscl.data.canonical import AugmentName
from nscl.data.errors import DataError
from nscl.data.files import FileSplit
from nscl.data.tasks import Split


@dataclass(frozen=True, eq=False)
class Batches:
    """Iterate over ``(float32 images, int64 labels)``; every iteration is a new epoch.

    All randomness comes from ``generator`` (torch's global one if None), drawn on its own device:
    one permutation per epoch, then one draw per batch, so its state between epochs is all that a
    checkpoint needs. ``shard=(rank, ranks)`` yields every ranks-th row of each batch with the very
    draws that a single process would use. ``workers`` only matter to pictures that are decoded
    while training.
    """

    split: Split
    _: KW_ONLY
    batch_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    generator: torch.Generator | None = None
    shuffle: bool = True
    augment: AugmentName = "none"
    padding: int = 4
    drop_last: bool = False
    device: torch.device | str = "cpu"
    shard: tuple[int, int] = (0, 1)
    workers: int = 2

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise DataError(f"the batch size must be at least 1, not {self.batch_size}")
        if self.augment not in ("none", "crop-flip"):
            raise DataError(f"augment {self.augment!r} is not known; choose 'none' or 'crop-flip'")
        rank, ranks = self.shard
        if not 0 <= rank < ranks:
            raise DataError(f"shard {self.shard} is not (rank, ranks) with 0 <= rank < ranks")

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        whole, rest = divmod(len(self.split), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        rank, ranks = self.shard
        chunks = list(torch.split(self._order(), self.batch_size))[: len(self)]
        mine = [chunk[rank::ranks] for chunk in chunks]
        for chunk, rows, images in zip(chunks, mine, self._images(mine), strict=True):
            batch = images.to(self.device, non_blocking=True)
            if self.augment == "crop-flip":
                draw = draw_crop_flip(len(chunk), padding=self.padding, generator=self.generator)
                batch = apply_crop_flip(batch, draw[rank::ranks])
            labels = self.split.labels[rows.to(self.split.labels.device)]
            yield normalise(batch, self.mean, self.std), labels.to(self.device, non_blocking=True)

    def _order(self) -> Tensor:
        if not self.shuffle:
            return torch.arange(len(self.split))
        device = self.generator.device if self.generator is not None else "cpu"
        return torch.randperm(len(self.split), generator=self.generator, device=device).cpu()

    def _images(self, chunks: list[Tensor]) -> Iterator[Tensor]:
        if isinstance(self.split, FileSplit):
            return self.split.gather_each(chunks, workers=self.workers)
        return (self.split.gather(rows) for rows in chunks)
