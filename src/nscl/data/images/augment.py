"""Augmentation and normalisation of batches on the training device, without loops over samples."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from nscl.data.errors import DataError


@dataclass(frozen=True, eq=False)
class CropFlip:
    """Random numbers of one batch: offsets of the crops, and which images are mirrored."""

    rows: Tensor
    columns: Tensor
    mirrored: Tensor
    padding: int

    def __getitem__(self, part: slice) -> "CropFlip":
        return CropFlip(self.rows[part], self.columns[part], self.mirrored[part], self.padding)


def normalise(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Turn ``uint8 [N, C, H, W]`` into float32 with ``(x / 255 - mean) / std`` per channel."""
    scale = [1 / (255 * spread) for spread in std]
    shift = [-centre / spread for centre, spread in zip(mean, std, strict=True)]
    shape = (1, len(scale), 1, 1)
    factor = torch.tensor(scale, device=images.device).view(shape)
    offset = torch.tensor(shift, device=images.device).view(shape)
    return images.float().mul_(factor).add_(offset)


def draw_crop_flip(
    count: int, *, padding: int = 4, generator: torch.Generator | None = None
) -> CropFlip:
    """Draw offsets in 0..2·padding and mirrorings with probability ½ for ``count`` images."""
    device = generator.device if generator is not None else torch.device("cpu")
    offsets = torch.randint(0, 2 * padding + 1, (2, count), generator=generator, device=device)
    mirrored = torch.randint(0, 2, (count,), generator=generator, device=device).bool()
    return CropFlip(offsets[0], offsets[1], mirrored, padding)


def apply_crop_flip(images: Tensor, draw: CropFlip) -> Tensor:
    """Crop each image out of its zero-padded copy, and mirror where drawn.

    One gather over flattened pixels: its index is shared by the channels, and the mirroring costs
    nothing because it only reverses the columns of the index.
    """
    count, channels, height, width = images.shape
    if len(draw.rows) != count:
        raise DataError(f"the draw is for {len(draw.rows)} images, the batch has {count}")
    rows, columns, mirrored = (
        part.to(images.device) for part in (draw.rows, draw.columns, draw.mirrored)
    )
    padded = F.pad(images, (draw.padding,) * 4)
    row = rows[:, None] + torch.arange(height, device=images.device)
    forward = torch.arange(width, device=images.device).expand(count, width)
    column = columns[:, None] + torch.where(mirrored[:, None], forward.flip(1), forward)
    index = (row[:, :, None] * padded.shape[-1] + column[:, None, :]).view(count, 1, height * width)
    cut = padded.flatten(2).gather(2, index.expand(-1, channels, -1))
    return cut.view(count, channels, height, width)


def crop_flip(
    images: Tensor, *, padding: int = 4, generator: torch.Generator | None = None
) -> Tensor:
    """Crop at random out of the zero-padded images and mirror half of them.

    >>> batch = torch.zeros(8, 3, 32, 32, dtype=torch.uint8)
    >>> crop_flip(batch, generator=torch.Generator().manual_seed(0)).shape
    torch.Size([8, 3, 32, 32])
    """
    return apply_crop_flip(
        images, draw_crop_flip(len(images), padding=padding, generator=generator)
    )
