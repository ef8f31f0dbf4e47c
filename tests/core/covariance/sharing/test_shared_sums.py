"""Shared sums are those that each block would have alone, whatever is called in which order."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nscl.core.covariance.convolution.unfold import Geometry, Patches
from nscl.core.covariance.observations import InputRows, Observation, TokenCounter, TokenIds
from nscl.core.covariance.sharing.shared_sums import SharedSums, Sums
from nscl.core.covariance.sketch_accumulator import new_sums
from nscl.core.model.block import Block

NAMES = ("query", "key", "value")
BLOCKS = {n: Block(n, "Linear", f"{n}.weight", 0, 3, 4) for n in NAMES}
Calls = list[list[tuple[str, int]]]  # of batches: who is called with which tensor


def fresh(block: Block) -> Sums:
    if block.layout == "tokens":
        return TokenCounter(block.features)
    return new_sums(
        groups=block.groups,
        features=block.features,
        constants=len(block.biases),
        device=torch.device("cpu"),
        rank=None,
        exact=True,
    )


def tensor(batch: int, number: int) -> Tensor:
    generator = torch.Generator().manual_seed(10 * batch + number)
    return torch.randn(5, 4, dtype=torch.float64, generator=generator)


def run(calls: Calls) -> tuple[SharedSums, dict[str, Sums]]:
    shared, alone = SharedSums(fresh), {}
    for i, batch in enumerate(calls):
        tensors = [tensor(i, j) for j in range(3)]
        for name, number in batch:
            alone.setdefault(name, fresh(BLOCKS[name])).add(InputRows(tensors[number][None]), None)
            assert shared.add(BLOCKS[name], InputRows(tensors[number][None]), None)
        del tensors
    return shared, alone


@settings(max_examples=120, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 1)), max_size=6),
        min_size=1,
        max_size=4,
    )
)
def test_any_order_of_calls_gives_every_block_its_own_sums(calls: Calls) -> None:
    shared, alone = run(calls)
    for name in NAMES:
        found = shared.take(name)
        assert (found is None) == (name not in alone)
        if found is not None:
            assert found.rows == alone[name].rows
            torch.testing.assert_close(found.total(), alone[name].total(), rtol=1e-12, atol=1e-13)


TOGETHER: Calls = [[("query", 0), ("key", 0), ("value", 0)]] * 3


def test_what_is_always_fed_alike_is_summed_once() -> None:
    shared, _ = run(TOGETHER)
    assert shared.labels(NAMES) == [0, 0, 0]
    assert shared.labels(["other", "key"]) == [-1, 0]
    assert shared.take("query") is shared.take("value")


@pytest.mark.parametrize(
    ("last", "labels"),
    [
        ([("query", 0)], [0, 1, 1]),  # two are left out
        ([("query", 0), ("key", 1), ("value", 0)], [0, 1, 0]),  # one is given something else
        ([("query", 0), ("key", 0), ("value", 0), ("value", 0)], [0, 0, 1]),  # one is called again
    ],
)
def test_one_that_parts_leaves_the_others_together(
    last: list[tuple[str, int]], labels: list[int]
) -> None:
    shared, _ = run([*TOGETHER, last])
    assert shared.labels(NAMES) == labels


def add(shared: SharedSums, name: str, seen: Observation) -> None:
    assert shared.add(BLOCKS[name], seen, None)


def test_memory_that_was_written_to_in_between_is_not_the_same() -> None:
    shared, x = SharedSums(fresh), tensor(0, 0)
    add(shared, "query", InputRows(x[None]))
    x.mul_(2.0)
    add(shared, "key", InputRows(x[None]))
    assert shared.labels(NAMES[:2]) == [0, 1]


def test_memory_that_was_given_away_is_not_the_same() -> None:
    shared = SharedSums(fresh)
    for name in NAMES:  # each tensor is gone before the next one is made, often in its place
        add(shared, name, InputRows(tensor(0, 0)[None]))
    assert shared.labels(NAMES) == [0, 1, 2]


def test_a_waiting_call_is_not_changed_by_who_owns_its_memory() -> None:
    shared, x = SharedSums(fresh), tensor(0, 0)
    for name in NAMES[:2]:
        add(shared, name, InputRows(x[None]))
    truth = 2 * x.mT @ x
    again = x.clone()
    add(shared, "query", InputRows(again[None]))
    again.zero_()
    found = shared.take("query")
    assert found is not None
    assert found.rows == 10
    plain = fresh(BLOCKS["query"])
    for _ in range(2):
        plain.add(InputRows(x[None]), None)
    torch.testing.assert_close(found.total(), plain.total())
    assert float(truth.trace()) > 0


def test_other_shapes_and_constants_do_not_share() -> None:
    shared, x = SharedSums(fresh), tensor(0, 0)
    add(shared, "query", InputRows(x[None]))
    other = Block("narrow", "Linear", "narrow.weight", 0, 3, 2)
    assert shared.add(other, InputRows(x[None, :, :2]), None)
    assert shared.labels(["query", "narrow"]) == [0, 1]


def test_images_share_if_their_kernels_agree_and_tokens_never() -> None:
    shared, images = SharedSums(fresh), torch.randn(2, 1, 4, 4)
    same, padded = (Geometry((2, 2), (1, 1), (1, 1), ((p, p), (p, p))) for p in (0, 1))
    for name, geometry in zip(NAMES, (same, same, padded), strict=True):
        add(shared, name, Patches(images, geometry))
    assert shared.labels(NAMES) == [0, 0, 1]
    tokens = [Block(n, "Embedding", n, 0, 4, 4, layout="tokens") for n in "ab"]
    for block in tokens:
        assert shared.add(block, TokenIds(torch.tensor([1, 2])), None)
    assert shared.labels("ab") == [0, 1]
