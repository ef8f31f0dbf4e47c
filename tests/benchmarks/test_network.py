"""The network that is measured is the one that is named, with the ranks that were published."""

import pytest
import torch
from benchmarks.allocations import peak_bytes
from benchmarks.free_directions import FREE_DIRECTIONS
from benchmarks.network import layers, network, remembered
from torch import nn

from benchmarks import network as module
from nscl.core.projection import Projection


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


def thin(features: int) -> Projection:
    return Projection(torch.eye(features)[None, :, :1].contiguous(), removes=True)


@pytest.fixture
def one_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bases of one column: those of full rank take seconds to make."""
    monkeypatch.setattr(module, "bases", lambda: {name: thin(d) for name, d, _ in layers()})


@pytest.mark.usefixtures("one_column")
def test_a_memory_put_together_protects_like_a_learned_one() -> None:
    model = network()
    memory = remembered(model, tasks=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    memory.protect(optimizer)
    weight = model.get_parameter("backbone.blocks.7.conv2.weight")
    before = weight.detach().clone()
    model(torch.randn(2, 3, 8, 8), 0).square().sum().backward()
    optimizer.step()
    moved = (weight.detach() - before).flatten(1)
    assert moved[:, 0].abs().max() < 1e-7 < moved[:, 1:].abs().max()


@pytest.mark.usefixtures("one_column")
def test_later_tasks_take_no_more_room() -> None:
    first, later = remembered(network(), tasks=1), remembered(network(), tasks=25)
    assert first.nbytes == later.nbytes
    name = "backbone.bn.weight"
    ratio = later._state.anchors[name].fisher / first._state.anchors[name].fisher
    assert torch.allclose(ratio, torch.full_like(ratio, 25.0))


def test_peaks_are_counted_not_totals() -> None:
    def twice() -> None:
        for _ in range(2):
            torch.empty(1 << 18)  # 1 MiB each, one after the other

    assert 1 << 20 <= peak_bytes(twice) < 2 << 20
