"""What a convolution's kernel sees: geometry, and the obvious way of writing its rows out.

A convolution is a linear map of patches. Features are ordered as ``weight.flatten(1)``: channel
first, then the kernel's positions. Zero padding is part of the patches.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

# Patches are written out for as many images at a time as fit into this many numbers (16 MiB).
CHUNK = 1 << 22

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Geometry:
    """Where a kernel stands on its input, in any number of spatial dimensions."""

    kernel: Ints
    stride: Ints
    dilation: Ints
    padding: tuple[tuple[int, int], ...]  # zeros before and after, per dimension
    groups: int = 1

    @property
    def positions(self) -> int:
        """Number of kernel positions: 9 for a 3 × 3 kernel."""
        return math.prod(self.kernel)

    @property
    def offsets(self) -> list[Ints]:
        """The kernel's positions in the order of ``weight.flatten(2)``."""
        return list(product(*(range(k) for k in self.kernel)))

    def output_size(self, size: Ints) -> Ints:
        """Spatial size of the output; may be zero or negative where the kernel does not fit."""
        return tuple(
            (n + before + after - dilation * (k - 1) - 1) // stride + 1
            for n, k, stride, dilation, (before, after) in zip(
                size, self.kernel, self.stride, self.dilation, self.padding, strict=True
            )
        )


@dataclass(frozen=True)
class Patches:
    """One call of a convolution: its input ``[images, channels, *size]`` and its geometry."""

    images: Tensor
    geometry: Geometry

    @property
    def size(self) -> Ints:
        """Spatial size of the input."""
        return tuple(self.images.shape[2:])

    @property
    def rows(self) -> int:
        """Number of patches: images times output positions."""
        return len(self.images) * math.prod(self.geometry.output_size(self.size))

    def split(self, rows: int) -> Iterator["Patches"]:
        """A few images at a time: at most ``rows`` rows that fit into CHUNK, or a single image."""
        positions = math.prod(self.geometry.output_size(self.size))
        numbers = self.images.shape[1] * self.geometry.positions * positions
        few = max(1, min(CHUNK // max(1, numbers), rows // max(1, positions)))
        parts = -(-len(self.images) // few)
        for images in self.images.split(max(1, -(-len(self.images) // max(1, parts)))):
            yield Patches(images, self.geometry)

    def unfolded(self) -> Iterator[Tensor]:
        """The patches themselves, ``[groups, rows, features]``, some images at a time."""
        for few in self.split(rows=self.rows):
            yield unfold(few.images, few.geometry)


def unfold(images: Tensor, geometry: Geometry) -> Tensor:
    """Write the patches of ``[images, channels, *size]`` out as ``[groups, rows, features]``."""
    padding = [p for pair in reversed(geometry.padding) for p in pair]
    padded = F.pad(images, padding) if any(padding) else images
    size = geometry.output_size(tuple(images.shape[2:]))
    views = []
    for offset in geometry.offsets:
        window = padded.transpose(0, 1)
        for dim, (o, n) in enumerate(zip(offset, size, strict=True)):
            start, step = o * geometry.dilation[dim], geometry.stride[dim]
            index = (slice(None),) * (dim + 2) + (slice(start, start + step * (n - 1) + 1, step),)
            window = window[index]
        views.append(window)
    stacked = torch.stack(views, dim=1)  # [channels, positions, images, *output]
    # Written out once, features first: matrix products take the transposed view as it is.
    features = images.shape[1] // geometry.groups * len(views)
    return stacked.reshape(geometry.groups, features, -1).mT
