"""Gradients as one vector: taken, multiplied in float64, put back."""

import math

import pytest
import torch
from torch import nn

from nscl.methods.replay.flat_gradients import angle, flattened, gradient_of, inner, put_gradients


def test_inner_products_are_summed_in_float64() -> None:
    """Many float32 numbers, in several chunks: a float32 sum would be off in the third digit."""
    rows = torch.stack([torch.full((600_001,), 0.1), torch.ones(600_001)])
    exact = rows.double()
    assert inner(rows, rows).dtype == torch.float64
    torch.testing.assert_close(inner(rows, rows), exact @ exact.T, rtol=1e-10, atol=0)
    assert angle(torch.tensor([[1.0, -1.0 - 1e-12], [0.0, 1.0]])) == pytest.approx(math.pi)


def test_a_vector_goes_back_into_the_gradients_it_came_from() -> None:
    weight, bias = nn.Parameter(torch.randn(2, 3)), nn.Parameter(torch.randn(2))
    weight.grad = torch.zeros(2, 3)
    kept = weight.grad
    vector = torch.arange(8.0)
    put_gradients([weight, bias], vector)
    assert weight.grad is kept  # an optimizer may hold it
    assert torch.equal(flattened([weight, bias], [weight.grad, bias.grad]), vector)
    vector.zero_()
    assert float(bias.grad.sum()) == 6 + 7  # type: ignore[union-attr]


def test_a_gradient_is_taken_without_touching_any() -> None:
    used, unused = nn.Parameter(torch.tensor([1.0, 2.0])), nn.Parameter(torch.ones(2))
    found = gradient_of((used**2).sum(), [unused, used])
    assert found.tolist() == [0, 0, 2, 4]
    assert used.grad is None


@pytest.mark.parametrize(
    ("g", "r", "expected"),
    [
        ((1.0, 0.0), (0.0, 2.0), math.pi / 2),
        ((1.0, 0.0), (3.0, 0.0), 0.0),
        ((1.0, 0.0), (0.0, 0.0), 0.0),
        ((1.0, 1.0), (1.0, 0.0), math.pi / 4),
    ],
)
def test_angles(g: tuple[float, float], r: tuple[float, float], expected: float) -> None:
    rows = torch.tensor([g, r])
    assert angle(inner(rows, rows)) == pytest.approx(expected)
