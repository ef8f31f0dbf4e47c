"""A sketch of rows that arrive in batches, against the full matrix of all of them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nscl.core.covariance.accumulator import CovarianceAccumulator
from nscl.core.covariance.convolution.unfold import Geometry, Patches
from nscl.core.covariance.low_rank import Sketch
from nscl.core.covariance.observations import InputRows, TokenIds
from nscl.core.covariance.sketch_accumulator import SketchAccumulator, new_sums
from tests.core.covariance.test_low_rank import check_bounds, random_rows

CPU = torch.device("cpu")


def accumulated(rows: Tensor, rank: int, *, batch: int) -> Sketch:
    sums = SketchAccumulator(
        groups=len(rows), features=rows.shape[-1], constants=0, device=CPU, rank=rank
    )
    assert all(sums.add(InputRows(part), None) for part in rows.split(batch, 1))
    assert sums.rows == rows.shape[1]
    return sums.sketch()


@settings(max_examples=60, deadline=None)
@given(
    groups=st.integers(1, 2),
    count=st.integers(1, 60),
    width=st.integers(2, 24),
    rank=st.integers(1, 12),
    decay=st.sampled_from([1.0, 0.8, 0.3]),
    batch=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_both_bounds_hold(
    groups: int, count: int, width: int, rank: int, decay: float, batch: int, seed: int
) -> None:
    rows = random_rows(groups, count, width, decay=decay, seed=seed)
    found = accumulated(rows, rank, batch=batch)
    assert found.rows.shape[1] <= rank
    check_bounds(found, rows)


@pytest.mark.parametrize("width", [40, 9])  # more and fewer features than rows in the buffer
def test_data_of_few_directions_lose_nothing(width: int) -> None:
    torch.manual_seed(0)
    few = torch.randn(1, 500, 8, dtype=torch.float64) @ torch.randn(8, width, dtype=torch.float64)
    found = accumulated(few, 8, batch=17)
    truth = few.mT @ few
    assert float(found.lost) == float(found.bound) == 0.0
    assert torch.allclose(found.rows.mT @ found.rows, truth, rtol=1e-12, atol=1e-12 * truth.max())


def test_patches_and_biases_are_rows_too() -> None:
    torch.manual_seed(0)
    images = torch.randn(6, 4, 5, 5)
    geometry = Geometry((3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), groups=2)
    sums = SketchAccumulator(groups=2, features=18, constants=2, device=CPU, rank=20)
    assert sums.add(Patches(images, geometry), 1)
    assert sums.add(Patches(images[:0], geometry), 1)
    patches = torch.cat(list(Patches(images, geometry).unfolded()), 1).double()
    columns = [torch.zeros_like(patches[..., :1]), torch.ones_like(patches[..., :1])]
    rows = torch.cat([patches, *columns], -1)
    assert sums.rows == rows.shape[1] == 150
    found = sums.sketch()
    assert torch.allclose(found.rows.mT @ found.rows, rows.mT @ rows, rtol=1e-9, atol=1e-9)


def test_what_is_not_finite_is_reported_and_not_decomposed() -> None:
    sums = SketchAccumulator(groups=1, features=3, constants=0, device=CPU, rank=2)
    assert not sums.add(InputRows(torch.full((1, 9, 3), torch.inf)), None)
    with pytest.raises(TypeError, match="tokens are counted"):
        sums.add(TokenIds(torch.zeros(3, dtype=torch.long)), None)


def test_only_what_is_wider_than_the_rank_is_sketched() -> None:
    for rank, features, kind in (
        (None, 50, CovarianceAccumulator),
        (5, 4, CovarianceAccumulator),
        (5, 40, SketchAccumulator),
    ):
        sums = new_sums(groups=1, features=features, constants=1, device=CPU, rank=rank)
        assert type(sums) is kind
