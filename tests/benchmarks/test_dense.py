"""The yardstick itself: the dense way computes what it claims to, on tiny sizes."""

import pytest
import torch
from torch import Tensor, nn

from benchmarks import dense
from nscl.core.covariance.accumulator import CovarianceAccumulator
from nscl.core.covariance.packed import unpack
from nscl.core.model.layer_types import Call, layer_type_of
from nscl.core.norms.fisher import Anchor
from nscl.core.projection.low_rank_projector import Projection


def small_projection(features: int, columns: int, *, removes: bool) -> Projection:
    basis, _ = torch.linalg.qr(torch.randn(features, columns, dtype=torch.float64))
    return Projection(basis[None], removes)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("padding", [0, 1])
def test_unfolded_covariances_are_ours(stride: int, padding: int) -> None:
    layer = nn.Conv2d(3, 5, 3, stride=stride, padding=padding, bias=False).double()
    images = torch.randn(4, 3, 6, 6, dtype=torch.float64)
    total = torch.zeros(27, 27, dtype=torch.float64)
    dense.add_covariance(total, dense.unfolded(images, layer))
    kind = layer_type_of(layer)
    assert kind is not None
    sums = CovarianceAccumulator(groups=1, features=27, constants=0, device=torch.device("cpu"))
    for seen in kind.observe(layer, Call((images,), {}, None)):
        sums.add(seen, None)
    assert torch.allclose(unpack(sums.total())[0], total, atol=1e-12)


def test_unfolded_patches_times_weights_are_the_convolution() -> None:
    layer = nn.Conv2d(2, 4, 3, padding=1, bias=False).double()
    images = torch.randn(3, 2, 5, 5, dtype=torch.float64)
    outputs = layer.weight.flatten(1) @ dense.unfolded(images, layer)
    expected = layer(images).transpose(0, 1).flatten(1)
    assert torch.allclose(outputs, expected, atol=1e-12)


def test_the_decomposition_gives_eigenvectors() -> None:
    rows = torch.randn(40, 6, dtype=torch.float64)
    covariance = rows.T @ rows
    vectors, values = dense.decompose(covariance)
    assert vectors.dtype == torch.float32
    assert torch.allclose(covariance.float() @ vectors, vectors * values, atol=1e-3)


@pytest.mark.parametrize("removes", [True, False])
def test_the_projector_is_the_thin_one_written_out(removes: bool) -> None:
    thin = small_projection(7, 3, removes=removes)
    delta = torch.randn(1, 4, 7, dtype=torch.float64)
    expected = delta[0] @ dense.projector(thin)
    thin.apply_(delta)
    assert torch.allclose(delta[0], expected, atol=1e-12)


def test_penalties_have_the_gradient_of_one_anchor() -> None:
    weight = nn.Parameter(torch.randn(5, dtype=torch.float64))
    tasks = [(torch.rand(5).double(), torch.randn(5).double()) for _ in range(3)]
    dense.ewc([[(weight, fisher, place)] for fisher, place in tasks]).backward()
    anchor = Anchor(tasks[0][0], tasks[0][0] * tasks[0][1], 1)
    for fisher, place in tasks[1:]:
        anchor = anchor.plus(Anchor(fisher, fisher * place, 1))
    assert weight.grad is not None
    assert torch.allclose(weight.grad, anchor.parabola().gradient(weight.detach()))


def test_without_tasks_there_is_no_penalty() -> None:
    assert dense.ewc([]) == 0


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor) -> None:
    for _ in range(5):
        optimizer.zero_grad()
        model(images).square().sum().backward()
        optimizer.step()


def pair() -> tuple[nn.Conv2d, nn.Conv2d]:
    first = nn.Conv2d(2, 3, 2).double()
    second = nn.Conv2d(2, 3, 2).double()
    second.load_state_dict(first.state_dict())
    return first, second


def test_without_projectors_it_is_adam() -> None:
    mine, theirs = pair()
    images = torch.randn(3, 2, 4, 4, dtype=torch.float64)
    trained(mine, dense.DenseAdam(mine.parameters(), {}, lr=1e-2), images)
    trained(theirs, torch.optim.Adam(theirs.parameters(), lr=1e-2), images)
    assert torch.allclose(mine.weight, theirs.weight, atol=1e-12)


def test_what_the_projector_holds_does_not_move() -> None:
    layer, free = pair()
    images = torch.randn(3, 2, 4, 4, dtype=torch.float64)
    thin = small_projection(8, 5, removes=True)
    before = layer.weight.detach().clone()
    projectors = {layer.weight: dense.projector(thin)}
    trained(layer, dense.DenseAdam(layer.parameters(), projectors, lr=1e-2), images)
    moved = (layer.weight.detach() - before).flatten(1)
    assert (moved @ thin.basis[0]).abs().max() < 1e-12
    assert moved.abs().max() > 1e-3
    trained(free, dense.DenseAdam(free.parameters(), {}, lr=1e-2), images)
    assert ((free.weight.detach() - before).flatten(1) @ thin.basis[0]).abs().max() > 1e-3
