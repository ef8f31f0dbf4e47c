"""Resize and recolour uint8 images, in large batches."""

import torch
import torch.nn.functional as F
from torch import Tensor

from nscl.data.errors import DataError

_CHUNK = 4096
_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601


def resize(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Scale ``uint8 [N, C, H, W]`` to ``size`` = (height, width), antialiased bilinear."""
    if tuple(images.shape[-2:]) == size:
        return images
    parts = [
        F.interpolate(part, size=size, mode="bilinear", antialias=True, align_corners=False)
        for part in torch.split(images, _CHUNK)
    ]
    return torch.cat(parts)


def recolour(images: Tensor, channels: int) -> Tensor:
    """Turn grey into colour by repeating it, or colour into grey by its luma."""
    have = images.shape[1]
    if have == channels:
        return images
    if have == 1:
        return images.expand(-1, channels, -1, -1).contiguous()
    if (have, channels) != (3, 1):
        raise DataError(f"images with {have} channels cannot be turned into {channels}")
    weights = torch.tensor(_LUMA).view(1, 3, 1, 1)
    grey = [(part * weights).sum(1, keepdim=True).round() for part in torch.split(images, _CHUNK)]
    return torch.cat(grey).to(torch.uint8)


def adapt(images: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Convert images to ``shape`` = (channels, height, width)."""
    channels, height, width = shape
    return resize(recolour(images, channels), (height, width))
