"""The network of all figures, and memories of it that are put together instead of learned.

Spectra that give the published ranks would need the published data and minutes of decomposition.
What a step costs depends on shapes only, so a projection here is a random orthonormal basis of the
right rank.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import torch
from torch import Tensor, nn

from benchmarks.free_directions import FREE_DIRECTIONS
from nscl import Memory
from nscl.core.anchors import Anchor
from nscl.core.covariance import Covariance
from nscl.core.inventory import take_inventory
from nscl.core.projection import Projection
from nscl.core.spectrum import Spectrum
from nscl.core.state import State
from nscl.core.symmetric import packed_shape
from nscl.models import MultiHead, PreActResNet18

BATCH = 32
CLASSES = 10
BATCHES_PER_TASK = 157  # 5,000 training images of a CIFAR-100 task


@dataclass(frozen=True)
class Batch:
    """Random images with labels, the size of CIFAR."""

    images: Tensor
    labels: Tensor


def network() -> MultiHead:
    """The paper's PreAct ResNet-18 under one head, always with the same weights."""
    torch.manual_seed(0)
    return MultiHead(PreActResNet18(), [CLASSES])


@cache
def batch() -> Batch:
    """The same batch for everybody."""
    draw = torch.Generator().manual_seed(1)
    images = torch.randn(BATCH, 3, 32, 32, generator=draw)
    return Batch(images, torch.randint(CLASSES, (BATCH,), generator=draw))


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


def remembered(model: nn.Module, *, tasks: int, offload: Literal["disk"] | None = None) -> Memory:
    """A memory as ``tasks`` calls of ``remember`` would have left it, but for its numbers."""
    memory = Memory(model, offload=offload)
    found = take_inventory(memory.model)
    blocks = {name: found.blocks[name] for name in bases()}
    state = State(
        blocks=blocks,
        covariances={n: _covariance(b.features, tasks) for n, b in blocks.items()},
        spectra={n: _spectrum(b.features) for n, b in blocks.items()},
        projections=dict(bases()),
        reference={b.weight: found.parameters[b.weight].detach().clone() for b in blocks.values()},
        anchors={n: _anchor(p.detach(), tasks) for n, p in found.norm_parameters().items()},
        tasks=tasks,
    )
    # Projections are kept where covariances have not changed: nothing is decomposed.
    memory._state = replace(state)
    memory._replace(state)
    return memory


def _covariance(features: int, tasks: int) -> Covariance:
    sums = torch.zeros(packed_shape(1, features), dtype=torch.float64)
    return Covariance(sums, rows=BATCH * BATCHES_PER_TASK * tasks, tasks=tasks)


def _spectrum(features: int) -> Spectrum:
    zeros = torch.zeros(1, features, dtype=torch.float64)
    return Spectrum(zeros, zeros, zeros[:, :1])


def _anchor(weight: Tensor, tasks: int) -> Anchor:
    fisher = torch.full_like(weight, 1e-3, dtype=torch.float64)
    anchor = one = Anchor(fisher, fisher * weight, BATCHES_PER_TASK)
    for _ in range(tasks - 1):
        anchor = anchor.plus(one)
    return anchor
