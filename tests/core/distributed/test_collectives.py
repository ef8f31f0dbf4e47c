"""Two ranks are one process: sums over ranks, errors on one of them, and data-parallel training."""

from typing import Any

import pytest
import torch

import nscl
from nscl.core.distributed.collectives import (
    as_on_first_rank,
    in_lockstep,
    rank_and_world,
    sum_over_ranks,
)
from tests.core.distributed import parallel_models as cases
from tests.core.distributed.parallel_launch import Ranks, largest_difference, results
from tests.core.distributed.parallel_models import protected


def test_all_ranks_came_to_a_good_end(ranks: Ranks) -> None:
    assert ranks[0]["ended"].startswith("exit codes [0, 0]"), ranks[0]["ended"]


def test_each_collective_gives_every_rank_the_same(ranks: Ranks) -> None:
    first, second = results(ranks, "collectives")
    for rank, found in enumerate((first, second)):
        assert found["sum"].tolist() == [3.0, 30.0]
        assert found["mine"].tolist() == [1.0 + rank, 10.0 + 10 * rank]  # a sum changes no input
        assert found["any"] == [True, False]
        assert [tensor.tolist() for tensor in found["from"]] == [[1.0, 10.0], [2.0, 20.0]]
        assert [tensor.tolist() for tensor in found["shared"]] == [[0.0, 0.0], 0.0]
        assert found["own"][0].tolist() == [rank, rank]  # after an exception
        assert found["in step"] == [0, 1, 2]
        assert "different number of batches" in found["uneven"]


def test_alone_a_collective_is_nothing_at_all() -> None:
    mine = torch.ones(2)
    assert sum_over_ranks(mine) is mine
    assert rank_and_world() == (0, 1)
    with as_on_first_rank([mine]):
        assert mine.tolist() == [1.0, 1.0]
    assert list(in_lockstep("abc")) == ["a", "b", "c"]
    with pytest.raises(ZeroDivisionError):
        list(in_lockstep(1 / n for n in (1, 0)))


def assert_equal_states(one: Any, other: Any, *, exactly: bool) -> None:
    assert one["tensors"].keys() == other["tensors"].keys()
    for name, tensor in one["tensors"].items():
        rtol = 0 if exactly else 1e-12
        torch.testing.assert_close(tensor, other["tensors"][name], rtol=rtol, atol=rtol)
    for name, block in one["metadata"]["blocks"].items():
        seen, same = block["seen"], other["metadata"]["blocks"][name]["seen"]
        assert (seen["rows"], seen["tasks"]) == (same["rows"], same["tasks"])
        assert seen["noise"] == pytest.approx(same["noise"], rel=0 if exactly else 1e-9)
    for key in ("tasks", "batches", "held"):
        assert one["metadata"][key] == other["metadata"][key]


def test_every_rank_has_the_identical_memory_of_the_whole(ranks: Ranks) -> None:
    first, second = results(ranks, "whole_memory")
    assert_equal_states(first, second, exactly=True)
    memory, _optimizer = protected(cases.build(cases.Branches))
    memory.remember(cases.batches())
    with torch.no_grad():
        for p in memory.model.parameters():
            p.mul_(1.1)
    with pytest.warns(nscl.NsclWarning, match="moved out of the null space"):
        memory.remember(cases.batches())
    whole = memory.state_dict()
    assert_equal_states(first, whole, exactly=False)
    # Uneven numbers of batches, a layer run on one rank only, norm anchors, statistics.
    seen = {name: b["seen"]["rows"] for name, b in first["metadata"]["blocks"].items()}
    assert seen == {"first": 34, "extra": 18, "last": 34}
    assert first["metadata"]["batches"]["layer_norm.weight"] == 5
    assert first["tensors"]["fisher/layer_norm.weight"].abs().max() > 0
    assert "statistics/batch_norm/running_mean" in first["tensors"]


def test_a_rank_may_have_no_data_if_another_has(ranks: Ranks) -> None:
    first, second = results(ranks, "a_rank_without_data")
    assert_equal_states(first["state"], second["state"], exactly=True)
    memory, _optimizer = protected(cases.build(cases.Branches))
    memory.remember(cases.batches())
    assert_equal_states(first["state"], memory.state_dict(), exactly=False)
    assert "remember got no batches" in first["none"]
    assert "remember got no batches" in second["none"]


def test_an_error_on_one_rank_is_an_error_on_all(ranks: Ranks) -> None:
    first, second = results(ranks, "an_error_on_one_rank")
    assert "failed on another rank" in first["features"]
    assert "layer 'first' received non-finite features" in second["features"]
    assert first["loader"] == "NsclError: the disk is full"
    assert "failed on another rank" in second["loader"]
    for rank, found in enumerate((first, second)):
        assert (found["tasks"], found["tensors"], found["hooks"]) == (0, 0, 0)
        assert torch.equal(found["mean"], torch.full((6,), float(rank), dtype=torch.float64))
        assert found["afterwards"] == 1


def test_ranks_with_different_weights_are_refused(ranks: Ranks) -> None:
    for found in results(ranks, "different_weights"):
        assert "'last.weight' has different values on different ranks" in found["message"]
        assert found["tasks"] == 0


def test_distributed_data_parallel(ranks: Ranks) -> None:
    first, second = results(ranks, "data_parallel")
    assert not torch.equal(first["before sharing"], second["before sharing"])
    assert_equal_states(first["state"], second["state"], exactly=True)
    for found in (first, second):
        # The first rank's statistics count, as they do for DistributedDataParallel itself.
        assert torch.equal(found["mean"], first["before sharing"])
        assert found["moved"] < 1e-12
        assert largest_difference(found["start"], found["values"]) > 1e-3
    assert largest_difference(first["values"], second["values"]) == 0.0
