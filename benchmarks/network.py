"""The network of all figures, a batch for it, and projections of the published ranks.

Spectra that give these ranks would need the published data and minutes of decomposition. What a
step costs depends on shapes only, so a projection here is a random orthonormal basis of the right
rank.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.free_directions import FREE_DIRECTIONS
from nscl.core.projection.low_rank_projector import Projection
from nscl.models import MultiHead, PreActResNet18

BATCH = 32
CLASSES = 10
BATCHES_PER_TASK = 157  # 5,000 training images of a CIFAR-100 task


@dataclass(frozen=True)
class ImageBatch:
    """Random images with labels, the size of CIFAR."""

    images: Tensor
    labels: Tensor


def network() -> MultiHead:
    """The paper's PreAct ResNet-18 under one head, always with the same weights."""
    torch.manual_seed(0)
    return MultiHead(PreActResNet18(), [CLASSES])


def forward(model: nn.Module, images: Any) -> Any:
    """The answer of its one head."""
    return model(images, 0)


@cache
def batch() -> ImageBatch:
    """The same batch for all figures."""
    draw = torch.Generator().manual_seed(1)
    images = torch.randn(BATCH, 3, 32, 32, generator=draw)
    return ImageBatch(images, torch.randint(CLASSES, (BATCH,), generator=draw))


@cache
def bases() -> dict[str, Projection]:
    """A projection per convolution, of the published rank."""
    return {name: _projection(d, free) for name, d, free in layers()}


def layers() -> Iterator[tuple[str, int, int]]:
    """Qualified name, features and free directions of every convolution."""
    for name, (features, free) in FREE_DIRECTIONS.items():
        yield f"backbone.{name}", features, free


def _projection(features: int, free: int) -> Projection:
    removes = features - free <= free
    columns = features - free if removes else free
    draw = torch.Generator().manual_seed(features + free)
    basis, _ = torch.linalg.qr(torch.randn(features, columns, generator=draw))
    return Projection(basis.contiguous()[None], removes)
