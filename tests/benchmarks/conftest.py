"""The figures' functions on a network of the same layers that is a thousand times smaller."""

from functools import cache

import pytest
import torch
from benchmarks.network import ImageBatch, layers
from benchmarks.timing import Stopwatch

from benchmarks import (
    covariances,
    decompositions,
    displacements,
    factors,
    memories,
    network,
    recalling,
    steps,
)
from nscl.core.projection.low_rank_projector import Projection
from nscl.models import MultiHead, PreActResNet18

MODULES = (covariances, decompositions, displacements, factors, memories, network, recalling, steps)


def small_network() -> MultiHead:
    torch.manual_seed(0)
    return MultiHead(PreActResNet18(width=2), [3])


def small_batch() -> ImageBatch:
    draw = torch.Generator().manual_seed(1)
    return ImageBatch(torch.randn(4, 3, 8, 8, generator=draw), torch.arange(4) % 3)


@cache
def small_bases() -> dict[str, Projection]:
    model = small_network()
    return {n: thin(model.get_parameter(f"{n}.weight")[0].numel()) for n, _, _ in layers()}


def thin(features: int) -> Projection:
    """A projection that holds the first feature."""
    return Projection(torch.eye(features)[None, :, :1].contiguous(), removes=True)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is measured on the small network."""
    small = {"network": small_network, "batch": small_batch, "bases": small_bases}
    for module in MODULES:
        for name, function in small.items():
            if callable(vars(module).get(name)):
                monkeypatch.setattr(module, name, function)
    monkeypatch.setattr(factors, "ADDED", 2)


@pytest.fixture
def watch() -> Stopwatch:
    """One that stops as soon as it may."""
    return Stopwatch(seconds=0.0)
