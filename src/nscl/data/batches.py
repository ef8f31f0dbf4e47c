"""Batches of a split, shuffled, augmented and normalised, without a DataLoader's overhead.

Batches of texts are cut to the longest text in them; there is nothing else to do.

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
from typing import Any, cast

import torch
from torch import Tensor

from nscl.data.disk.canonical import AugmentName
from nscl.data.errors import DataError
from nscl.data.images.augment import apply_crop_flip, draw_crop_flip, normalise
from nscl.data.images.files import FileSplit
from nscl.data.inputs import Inputs, to
from nscl.data.tasks import Split
from nscl.data.texts.split import trimmed


@dataclass(frozen=True, eq=False)
class Batches:
    """Iterate over ``(inputs, int64 labels)``; every iteration is a new epoch.

    Inputs are float32 images, or token ids and attention mask of texts.

    All randomness comes from ``generator`` (torch's global one if None), drawn on its own device:
    one permutation per epoch, then one draw per batch, so its state between epochs is all that a
    checkpoint needs. ``shard=(rank, ranks)`` yields every ranks-th row of each batch with the same
    draws that a single process would use. ``workers`` is used only for pictures that are decoded
    during training.
    """

    split: Split
    _: KW_ONLY
    batch_size: int
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
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
        if self.augment != "none" and self.split.kind != "images":
            raise DataError(
                f"augment {self.augment!r} is for pictures; these are {self.split.kind}"
            )
        rank, ranks = self.shard
        if not 0 <= rank < ranks:
            raise DataError(f"shard {self.shard} is not (rank, ranks) with 0 <= rank < ranks")

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        full, rest = divmod(len(self.split), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        rank, ranks = self.shard
        chunks = list(torch.split(self._order(), self.batch_size))[: len(self)]
        mine = [chunk[rank::ranks] for chunk in chunks]
        for chunk, rows, stored in zip(chunks, mine, self._stored(mine), strict=True):
            inputs = stored
            if self.augment == "crop-flip":
                draw = draw_crop_flip(len(chunk), padding=self.padding, generator=self.generator)
                images = cast("Tensor", stored).to(self.device, non_blocking=True)
                inputs = apply_crop_flip(images, draw[rank::ranks])
            labels = self.split.labels[rows.to(self.split.labels.device)]
            fed = as_fed(inputs, mean=self.mean, std=self.std, device=self.device)
            yield fed, labels.to(self.device, non_blocking=True)

    def _order(self) -> Tensor:
        if not self.shuffle:
            return torch.arange(len(self.split))
        device = self.generator.device if self.generator is not None else "cpu"
        return torch.randperm(len(self.split), generator=self.generator, device=device).cpu()

    def _stored(self, chunks: list[Tensor]) -> Iterator[Inputs]:
        if isinstance(self.split, FileSplit):
            return self.split.gather_each(chunks, workers=self.workers)
        return (self.split.take(rows) for rows in chunks)


def as_fed(
    stored: Inputs, *, mean: tuple[float, ...], std: tuple[float, ...], device: torch.device | str
) -> Inputs:
    """Return stored samples as the network sees them: images normalised, texts without padding."""
    if isinstance(stored, Tensor):
        return normalise(stored.to(device, non_blocking=True), mean, std)
    return to(trimmed(stored), device, non_blocking=True)
