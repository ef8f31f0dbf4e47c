"""The network that is measured is the one that is named, with the ranks that were published."""

import torch
from benchmarks.allocations import peak_bytes
from benchmarks.free_directions import FREE_DIRECTIONS
from benchmarks.network import layers, network
from torch import nn

from benchmarks import network as module


def test_every_convolution_has_its_published_rank() -> None:
    model = network()
    sizes = {n: m.weight[0].numel() for n, m in model.named_modules() if isinstance(m, nn.Conv2d)}
    assert sizes == {name: features for name, features, _ in layers()}
    assert all(0 < free < features for features, free in FREE_DIRECTIONS.values())
    assert sum(p.numel() for p in model.backbone.parameters()) == 11_167_040


def test_a_projection_has_the_thinner_basis() -> None:
    kept, removed = module._projection(12, 4), module._projection(12, 9)
    assert (kept.columns, kept.removes) == (4, False)
    assert (removed.columns, removed.removes) == (3, True)
    eye = kept.basis[0].T @ kept.basis[0]
    assert torch.allclose(eye, torch.eye(4), atol=1e-5)


def test_peaks_are_counted_not_totals() -> None:
    def twice() -> None:
        for _ in range(2):
            torch.empty(1 << 18)  # 1 MiB each, one after the other

    assert 1 << 20 <= peak_bytes(twice) < 2 << 20
