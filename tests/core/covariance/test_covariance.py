"""Covariances between passes: their sum over tasks, and the mean squared output they predict."""

import pytest
import torch

from nscl.core.covariance.covariance import quadratic
from tests.core.covariance.test_accumulator import kept, sums_of


def test_the_mean_quadratic_form_is_the_mean_squared_output() -> None:
    rows = torch.randn(2, 9, 3, dtype=torch.float64)
    weight, bias = torch.randn(2, 4, 3).double(), torch.randn(2, 4).double()
    found = kept(sums_of(rows, constants=1, constant=0))
    outputs = rows @ weight.mT + bias[:, None]
    expected = float(outputs.square().sum(-1).sum(0).mean())
    assert quadratic(found, weight, [bias]) == pytest.approx(expected, rel=1e-13)


def test_more_tasks_or_more_of_the_same() -> None:
    first, second = (kept(sums_of(torch.randn(1, n, 3).double())) for n in (4, 6))
    both = first.plus(second)
    assert (both.rows, both.tasks) == (10, 2)
    assert torch.allclose(both.dense() * 10, first.dense() * 4 + second.dense() * 6)
    assert first.plus(second, same_tasks=True).tasks == 1
    assert both.noise == max(first.noise, second.noise)
    assert both.nbytes == first.nbytes == 3 * 2 * 8
