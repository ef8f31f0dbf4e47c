"""One item of a torch dataset, converted to uint8 pixels and an integer label."""

import math

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nscl.data.errors import DataError
from nscl.data.readers.pictures import to_rgb


def pixels_of(image: object, *, where: str) -> Tensor:
    """Return ``uint8 [C, H, W]`` from a PIL image, a numpy array or a tensor.

    Tensors are ``[C, H, W]`` or ``[H, W]``; numpy arrays and PIL images ``[H, W, C]`` or
    ``[H, W]``. Floats must lie in 0..1. ``where`` is for messages.
    """
    if isinstance(image, Tensor):
        pixels = image.detach().cpu()
    elif isinstance(image, np.ndarray | Image.Image):
        pixels = torch.from_numpy(
            np.array(image if isinstance(image, np.ndarray) else _plain(image))
        )
        pixels = pixels.permute(2, 0, 1) if pixels.ndim == 3 else pixels
    else:
        raise DataError(
            f"{where} has an image of type {type(image).__name__}; "
            "return a tensor, a numpy array or a PIL image"
        )
    if pixels.ndim not in (2, 3):
        raise DataError(f"{where} has an image of shape {list(pixels.shape)}; expected [C, H, W]")
    return _to_uint8(pixels if pixels.ndim == 3 else pixels[None], where)


def label_of(label: object, *, where: str) -> int:
    """Return a class label as a Python integer."""
    if isinstance(label, Tensor | np.ndarray | np.generic) and math.prod(label.shape) == 1:
        label = label.item()
    if isinstance(label, int) and not isinstance(label, bool):
        return label
    raise DataError(f"{where} has the label {label!r}; labels must be integers")


def _plain(image: Image.Image) -> Image.Image:
    """Keep grey as it is; convert the rest, because palette indices are not colours."""
    return image.convert("L") if image.mode in ("1", "L") else to_rgb(image)


def _to_uint8(pixels: Tensor, where: str) -> Tensor:
    if pixels.dtype == torch.uint8:
        return pixels
    if pixels.dtype == torch.bool:
        return pixels.to(torch.uint8) * 255
    if not pixels.is_floating_point():
        raise DataError(f"{where} has {pixels.dtype} pixels; use uint8, or floats in 0..1")
    if not bool(((pixels >= 0) & (pixels <= 1)).all()):
        raise DataError(
            f"{where} has float pixels outside 0..1; pass images that are not normalised yet, "
            "the stream normalises them"
        )
    return (pixels * 255).round().to(torch.uint8)
