"""What a layer sees in one call: rows, patches or tokens, and the part of them that counts."""

from typing import Any

import pytest
import torch

from nscl.core.covariance.accumulator import CovarianceAccumulator
from nscl.core.covariance.convolution.unfold import Geometry, Patches, unfold
from nscl.core.covariance.observations import (
    InputRows,
    TokenCounter,
    TokenIds,
    averaged,
    selected,
)

REAL = torch.tensor([True, False, True, True])


def only(seen: Any, real: torch.Tensor | None = REAL) -> list[Any]:
    return list(selected(seen, real))


def test_rows_that_do_not_count_are_left_out() -> None:
    values = torch.randn(2, 4, 3)
    (found,) = only(InputRows(values))
    assert torch.equal(found.values, values[:, [0, 2, 3]])
    assert found.rows == 3
    whole = InputRows(values)
    assert only(whole, None) == [whole]


def test_sorted_rows_stay_in_their_places_and_become_zero() -> None:
    """As experts have them: two groups, and a place that only fills up."""
    values = torch.randn(2, 3, 2)
    sources = torch.tensor([[0, 1, 3], [2, -1, -1]])
    (found,) = only(InputRows(values, sources=sources, count=4))
    counts = torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    assert torch.equal(found.values, values * counts[..., None])
    assert found.rows == 3


def test_patches_that_count_are_written_out() -> None:
    images = torch.randn(3, 2, 4)
    patches = Patches(images, Geometry((2,), (1,), (1,), ((0, 0),)))
    real = torch.arange(9) % 2 == 0
    rows = torch.cat([found.values for found in only(patches, real)], 1)
    assert torch.equal(rows, unfold(images, patches.geometry)[:, real])
    assert only(patches, torch.ones(9, dtype=torch.bool)) == [patches]  # nothing is written out


def test_tokens_that_count_keep_their_factors() -> None:
    ids, factor = torch.tensor([[4, 5], [6, 4]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    (found,) = only(TokenIds(ids, factor))
    assert (found.ids.tolist(), found.factor.tolist()) == ([4, 6, 4], [1.0, 3.0, 4.0])


def test_a_mean_over_a_batch_keeps_positions_of_maps_and_all_tokens() -> None:
    images, values = torch.randn(3, 2, 4), torch.randn(1, 6, 5)
    maps: Any = averaged(Patches(images, Geometry((2,), (1,), (1,), ((0, 0),))))
    assert torch.equal(maps.images, images.mean(0, keepdim=True))
    rows: Any = averaged(InputRows(values))
    assert torch.equal(rows.values, values.mean(1, keepdim=True))
    tokens = TokenIds(torch.tensor([1, 2]))
    assert averaged(tokens) is tokens


@pytest.mark.parametrize("integer", [torch.int32, torch.int64])
def test_tokens_are_counted_by_the_squares_of_their_factors(integer: torch.dtype) -> None:
    counts = TokenCounter(5)
    for ids in ([[0, 3], [3, 3]], [[1]]):
        assert counts.add(TokenIds(torch.tensor(ids, dtype=integer)), None)
    assert counts.total().tolist() == [1, 1, 0, 3, 0]
    assert counts.rows == 5
    counts.add(TokenIds(torch.tensor([4, 4], dtype=integer), torch.tensor([2.0, 3.0])), None)
    assert counts.total().tolist() == [1, 1, 0, 3, 13]


def test_one_layout_for_one_block() -> None:
    sums = CovarianceAccumulator(groups=1, features=2, constants=0, device=torch.device("cpu"))
    with pytest.raises(TypeError, match="counted"):
        sums.add(TokenIds(torch.zeros(2, dtype=torch.int64)), None)
    with pytest.raises(TypeError, match="tokens"):
        TokenCounter(3).add(InputRows(torch.ones(1, 1, 2)), None)
