"""One parabola for any number of quadratic penalties, against their sum written out."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nscl.core.norms.parabola import Parabola

curvatures = st.floats(0, 1e3).filter(lambda k: k == 0 or k > 1e-9)
terms = st.lists(st.tuples(curvatures, st.floats(-5, 5)), min_size=1, max_size=8)


def number(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)


@given(terms, st.floats(-5, 5))
def test_the_sum_and_its_height_are_the_sum_written_out(
    tasks: list[tuple[float, float]], at: float
) -> None:
    total, rest = Parabola(number(0.0), number(0.0)), 0.0
    for curvature, centre in tasks:
        new = Parabola(number(curvature), number(centre))
        total, rest = total.plus(new), rest + total.height(new)
    size = 1e-9 * (1 + sum(k for k, _ in tasks))
    slow = sum(0.5 * k * (at - c) ** 2 for k, c in tasks)
    assert total.value(number(at)) + rest == pytest.approx(slow, rel=1e-9, abs=25 * size)
    slope = sum(k * (at - c) for k, c in tasks)
    assert total.gradient(number(at)).item() == pytest.approx(slope, rel=1e-9, abs=10 * size)


def test_a_gradient_step_does_not_go_beyond_the_centre() -> None:
    steep = Parabola(torch.tensor([0.2, 200.0, 0.0]).double(), torch.zeros(3).double())
    here = torch.ones(3).double()
    assert steep.gradient(here).tolist() == pytest.approx([0.2, 200.0, 0.0])
    for rate in (0.1, torch.tensor(0.1)):
        assert steep.gradient(here, rate=rate).tolist() == pytest.approx([0.2, 10.0, 0.0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_gradient_has_the_weight_s_precision(dtype: torch.dtype) -> None:
    parabola = Parabola(torch.full((2,), 200.0).double(), torch.ones(2).double())
    gradient = parabola.gradient(torch.full((2,), 1.5, dtype=dtype))
    assert gradient.dtype == dtype
    assert gradient.tolist() == [100.0, 100.0]


def test_rows_are_those_of_a_shard_and_a_single_number_has_none() -> None:
    parabola = Parabola(torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3))
    assert parabola.rows(1, 3).gradient(torch.ones(2)).tolist() == [2.0, 3.0]
    alone = Parabola(torch.tensor(1.0), torch.tensor(0.0))
    assert alone.rows(0, 1) is alone


def test_float32_keeps_the_gradient_near_the_centre() -> None:
    """A difference of products, ``k·w − k·c``, is rounded to hundreds of times the true slope."""
    weight = torch.tensor([1.1])
    near = weight + 2.0**-20
    slope = Parabola(torch.tensor([2e5]), weight).gradient(near)
    assert slope.item() == pytest.approx(2e5 * (near - weight).item(), rel=1e-6)
    assert (2e5 * near - 2e5 * weight).item() != pytest.approx(slope.item(), rel=1e-2)
