"""Covariances of two ranks are those of all rows; sketches are the merge of the two parts."""

import pytest
import torch

import nscl
from nscl.core.covariance.accumulator import CovarianceAccumulator
from nscl.core.covariance.observations import InputRows
from nscl.core.covariance.sketched_covariance import SketchedCovariance
from nscl.core.distributed.covariance_sums import (
    covariance_over_ranks,
    same_on_all_ranks,
    token_counts_over_ranks,
)
from tests.core.distributed import parallel_models as cases
from tests.core.distributed.parallel_launch import Ranks, largest_difference, results
from tests.core.distributed.parallel_sketches import RANK

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


def remembered(part: slice) -> nscl.Memory:
    model = cases.build(cases.Reader)
    memory = nscl.Memory(model, rule=cases.PROXIMAL["penalty"], rank=RANK)
    memory.remember(cases.sentences(0)[part], loss=cases.squares)
    return memory


def test_two_ranks_are_the_merge_of_the_two_parts(ranks: Ranks) -> None:
    merged = remembered(slice(0, None, 2))
    merged.merge(remembered(slice(1, None, 2)))
    expected = merged.state_dict()
    lost = 0.0
    for found in results(ranks, "sketches of parts"):
        for name, block in found["metadata"]["blocks"].items():
            assert block["seen"] == expected["metadata"]["blocks"][name]["seen"]
            lost += sum(block["seen"].get("sketch", {}).get("lost", ()))
        assert found["metadata"]["gradients"] == expected["metadata"]["gradients"]
        for name, tensor in found["tensors"].items():
            if name.startswith(("covariance", "gradient")):
                torch.testing.assert_close(tensor, expected["tensors"][name], rtol=0, atol=0)
    assert lost > 0
    first, second = results(ranks, "sketches of parts")
    assert first["metadata"] == second["metadata"]


def test_a_rank_without_data_has_the_sketches_of_the_other(ranks: Ranks) -> None:
    expected = remembered(slice(None)).state_dict()
    for found in results(ranks, "sketches of one rank"):
        for name, tensor in expected["tensors"].items():
            torch.testing.assert_close(found["tensors"][name], tensor, rtol=1e-10, atol=1e-12)


def test_shards_train_as_copies_do(ranks: Ranks) -> None:
    for copies, shards in zip(
        results(ranks, "ddp sketched"), results(ranks, "fsdp sketched"), strict=True
    ):
        assert largest_difference(shards["values"], copies["values"]) < 1e-10
        assert shards["forgetting"] == pytest.approx(copies["forgetting"], rel=1e-8)
        assert copies["forgetting"][2] > 0


def test_inputs_are_shared_only_where_they_are_on_every_rank(ranks: Ranks) -> None:
    for labels in results(ranks, "inputs shared on some ranks"):
        first, second, third, never = map(tuple, labels)
        assert len({first, second, third}) == 3
        assert never == (-1, -1)


def test_alone_the_sums_are_those_of_this_process() -> None:
    sums = CovarianceAccumulator(groups=1, features=2, constants=0, device=torch.device("cpu"))
    rows = torch.randn(1, 5, 2, dtype=torch.float64)
    sums.add(InputRows(rows), None)
    found = covariance_over_ranks(sums, groups=1, width=2, rank=None, rows=5, noise=0.5)
    assert torch.allclose(found.dense(), rows.mT @ rows / 5)
    assert (found.rows, found.noise) == (5, 0.5)
    unseen = covariance_over_ranks(None, groups=2, width=3, rank=None, rows=4)
    assert torch.equal(unseen.dense(), torch.zeros(2, 3, 3).double())
    assert token_counts_over_ranks(None, tokens=3, rows=4).sums.tolist() == [0.0] * 3
    assert same_on_all_ranks([0, 1, 0]) == [(0,), (1,), (0,)]


def test_a_wide_layer_has_a_sketch_even_where_no_row_was_seen() -> None:
    found = covariance_over_ranks(None, groups=2, width=9, rank=4, rows=6)
    assert isinstance(found, SketchedCovariance)
    assert (found.rank, found.sums.shape, found.lost.tolist()) == (4, (2, 0, 9), [0.0, 0.0])
