"""Lags and border strips add up to exactly what unfolded patches give."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from nscl.core.covariance.convolution import correlation as lagged
from nscl.core.covariance.convolution import correlation_plan
from nscl.core.covariance.convolution.correlation import CorrelationSums, gram, is_cheaper
from nscl.core.covariance.convolution.correlation_plan import plan
from nscl.core.covariance.convolution.unfold import Geometry, Patches, unfold


@st.composite
def calls(draw: st.DrawFn, dims: int, stride: int = 1) -> list[Patches]:
    """Some batches of one convolution, also on maps smaller than its kernel."""

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(dims))

    torch.manual_seed(draw(st.integers(0, 999)))
    groups = draw(st.integers(1, 3))
    channels = groups * draw(st.integers(1, 2))
    size = each(1, 6 if dims < 3 else 4)
    around = tuple((draw(st.integers(0, 4)), draw(st.integers(0, 4))) for _ in range(dims))
    geometry = Geometry(each(1, 4 if dims < 3 else 3), each(1, stride), each(1, 3), around, groups)
    assume(all(n > 0 for n in geometry.output_size(size)))
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    return [Patches(torch.randn(n, channels, *size, dtype=torch.float64), geometry) for n in counts]


def truth(batches: list[Patches]) -> tuple[Tensor, Tensor, int]:
    rows = torch.cat([unfold(batch.images, batch.geometry) for batch in batches], 1)
    return rows.mT @ rows, rows.sum(1), rows.shape[1]


@pytest.fixture(params=["zeros behind lines", "copied columns"])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Either way of finding the partners of a whole image, which else its size decides."""
    monkeypatch.setattr(correlation_plan, "WASTE", 100.0 if "zeros" in request.param else 0.0)
    plan.cache_clear()
    yield request.param
    plan.cache_clear()


@pytest.mark.parametrize("dims", [1, 2, 3])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_lags_equal_unfolded_patches(dims: int, layout: str, data: st.DataObject) -> None:
    batches = data.draw(calls(dims))
    assert not any(plan(batches[0].size, batches[0].geometry).zeros) or "zeros" in layout
    sums = CorrelationSums(batches[0])
    for batch in batches:
        diagonals = sums.add(batch)
        seen = batch.images.square().movedim(1, 0).flatten(1).sum(1)
        assert torch.allclose(torch.stack(diagonals).sum(0).flatten(), seen)
    matrix, column, rows = truth(batches)
    assert (sums.matrix() - matrix).abs().max() < 1e-12 * max(1.0, float(matrix.abs().max()))
    assert (sums.column() - column).abs().max() < 1e-12 * max(1.0, float(column.abs().max()))
    assert sums.rows == rows


@given(st.integers(1, 70), st.integers(1, 5), st.integers(1, 5), st.integers(1, 2))
def test_products_in_parts(rows: int, left: int, right: int, groups: int) -> None:
    torch.manual_seed(rows)
    a, b = (torch.randn(groups, rows, n, dtype=torch.float64) for n in (left, right))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lagged, "CACHED", 16)
        assert torch.allclose(gram(a, b), torch.einsum("gri,grj->gij", a, b), atol=1e-13)


def test_few_images_at_a_time_are_all_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lagged, "CHUNK", 100)
    geometry = Geometry((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))
    batch = Patches(torch.randn(7, 2, 4, 4, dtype=torch.float64), geometry)
    sums = CorrelationSums(batch)
    assert len(sums.add(batch)) > 1
    assert torch.allclose(sums.matrix(), truth([batch])[0], atol=1e-12)


def test_float32_products_are_summed_in_float64() -> None:
    geometry = Geometry((3,), (1,), (1,), ((1, 1),))
    batch = Patches(torch.randn(4, 2, 9), geometry)
    sums = CorrelationSums(batch)
    sums.add(batch)
    assert sums.matrix().dtype == sums.column().dtype == torch.float64
    exact = truth([Patches(batch.images.double(), geometry)])[0]
    assert torch.allclose(sums.matrix(), exact, atol=1e-4)


@settings(max_examples=30)
@given(data=st.data())
def test_only_stride_one_has_lags(data: st.DataObject) -> None:
    batch = data.draw(calls(2, stride=2))[0]
    if any(s > 1 for s in batch.geometry.stride) or batch.geometry.positions == 1:
        assert not is_cheaper(batch)


def test_the_usual_convolution_is_cheaper_by_lags() -> None:
    geometry = Geometry((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))
    batch = Patches(torch.zeros(1, 2, 32, 32), geometry)
    assert is_cheaper(batch)
    assert 4 * plan((32, 32), geometry).cost < 81 * 32 * 32
    pointwise = Geometry((1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)))
    assert not is_cheaper(Patches(batch.images, pointwise))


def test_a_large_kernel_is_planned_only_where_that_pays() -> None:
    """Planning costs the square of the number of positions in Python."""
    around = ((3, 3), (3, 3))
    geometry = Geometry((7, 7), (1, 1), (1, 1), around)
    assert not is_cheaper(Patches(torch.zeros(1, 2, 9, 9), geometry))
    assert is_cheaper(Patches(torch.zeros(16, 64, 9, 9), geometry))
    huge = Geometry((15, 15), (1, 1), (1, 1), ((7, 7), (7, 7)))
    assert not is_cheaper(Patches(torch.zeros(64, 64, 32, 32), huge))


def test_an_empty_sum_has_no_column() -> None:
    sums = CorrelationSums(Patches(torch.zeros(1, 1, 4), Geometry((2,), (1,), (1,), ((0, 0),))))
    with pytest.raises(RuntimeError, match="no batch"):
        sums.column()
