"""Rows of every shape a layer may be given, against a tensor whose padding is written into it."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from nscl.core.covariance.convolution.unfold import Geometry
from nscl.core.padding.real_rows import after_convolution, real_rows

MASK = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [0, 0, 1, 1, 0]]).bool()
TAGGED = MASK[..., None].expand(3, 5, 2).float()  # features that say whether they are real


@pytest.mark.parametrize(
    "given_to_layer",
    [
        lambda x: x,
        lambda x: x.transpose(0, 1),
        lambda x: x.flatten(0, 1),
        lambda x: x[:, :, None].expand(-1, -1, 4, -1),  # heads behind the positions
        lambda x: x[:, None].expand(-1, 4, -1, -1),  # and before them
        lambda x: x.transpose(0, 1)[:, :, None].expand(-1, -1, 2, -1),
    ],
)
def test_rows_are_real_where_their_position_is(given_to_layer: Callable[[Tensor], Tensor]) -> None:
    tensor = given_to_layer(TAGGED)
    found = real_rows(MASK, tensor.shape[:-1])
    assert found is not None
    assert torch.equal(found, tensor.reshape(-1, 2)[:, 0].bool())


@pytest.mark.parametrize("shape", [(3,), (), (3, 4), (4, 5), (7,), (3, 1), (2, 3, 5, 5)])
def test_rows_of_another_shape_all_count(shape: tuple[int, ...]) -> None:
    assert real_rows(MASK, shape) is None


@pytest.mark.parametrize("shape", [(5,), (1, 5)])
def test_a_position_without_a_batch_is_real_in_any_sample(shape: tuple[int, ...]) -> None:
    found = real_rows(MASK, shape)
    assert found is not None
    assert found.tolist() == [True, True, True, True, False]


def test_pairs_are_real_where_both_positions_are() -> None:
    pairs = MASK[:, :, None] & MASK[:, None, :]
    table, each = real_rows(MASK, (5, 5)), real_rows(MASK, (3, 5, 5))
    assert table is not None
    assert each is not None
    assert torch.equal(table, pairs.any(0).flatten())
    assert torch.equal(each, pairs.flatten())


SQUARE = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 0]]).bool()


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (torch.tensor([[4, 2, 0], [1, 0, 0], [3, 3, 0]]), SQUARE.flatten()),  # tokens
        (torch.zeros(3, 3), SQUARE.flatten()),  # token types
        (torch.arange(3), torch.tensor([True, True, False])),  # positions
        (torch.tensor([[0, 1, 2], [9, 0, 1], [8, 9, 0]]), real_rows(SQUARE.repeat(2, 1), (3, 3))),
    ],
)
def test_ids_tell_positions_from_samples_where_both_are_equally_many(
    ids: Tensor, expected: Tensor
) -> None:
    found = real_rows(SQUARE, ids.shape, ids)
    assert found is not None
    assert torch.equal(found, expected)


def test_task_numbers_of_as_many_samples_as_positions_all_count() -> None:
    assert real_rows(SQUARE, (3,), torch.tensor([2, 0, 1])) is None


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    around=st.integers(0, 3),
    more=st.integers(0, 5),
)
def test_behind_a_convolution_a_sample_is_as_long_as_it_would_be_alone(
    lengths: list[int], kernel: int, stride: int, dilation: int, around: int, more: int
) -> None:
    reach = dilation * (kernel - 1)
    longest = max(lengths) + more
    if longest + 2 * around <= reach:
        return
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    geometry = Geometry((kernel,), (stride,), (dilation,), ((around, around),))
    found = after_convolution(mask, geometry)
    conv = nn.Conv1d(1, 1, kernel, stride, around, dilation)
    assert found.shape == conv(torch.zeros(len(lengths), 1, longest)).squeeze(1).shape
    for row, length in zip(found, lengths, strict=True):
        alone = max(0, *geometry.output_size((length,)))
        assert row.tolist() == [at < alone for at in range(len(row))]
