"""Two ranks are one process: sums over ranks, DistributedDataParallel, and shards of FSDP2."""

from typing import Any

import pytest
import torch

import nscl
from tests.core.distributed import parallel_models as cases
from tests.core.distributed.parallel_launch import Ranks, largest_difference, launch, results
from tests.core.distributed.parallel_models import protected


@pytest.fixture(scope="module")
def ranks() -> Ranks:
    return launch()


def test_all_ranks_came_to_a_good_end(ranks: Ranks) -> None:
    assert all(found["ended"].startswith("exit code 0") for found in ranks), ranks[0]["ended"]


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


@pytest.mark.parametrize("acts_on", ["step", "displacement"])
@pytest.mark.parametrize("optimizer", cases.OPTIMIZERS)
def test_shards_are_projected_as_the_whole(ranks: Ranks, optimizer: str, acts_on: Any) -> None:
    model = cases.build(cases.Everything)
    memory, opt = protected(model, optimizer=optimizer, acts_on=acts_on)
    for _ in range(2):
        memory.remember(cases.old_tokens())
    start = cases.whole_values(model)
    cases.train(model, opt)
    expected = cases.whole_values(model)
    sizes = [p.numel() for p in model.parameters()]
    for found in results(ranks, f"sharded {optimizer} {acts_on}"):
        assert largest_difference(found["values"], expected) < 1e-10
        assert found["moved"] < 1e-12
        assert found["talk"] == 0  # no rank asked another for anything
        assert found["largest shard"] < max(sizes)
    moved = {name: float((expected[name] - start[name]).abs().max()) for name in start}
    assert min(moved.values()) > 1e-5


def test_forgetting_and_files_of_shards(ranks: Ranks) -> None:
    model = cases.build(cases.Everything)
    memory, opt = protected(model, acts_on="displacement", rule=nscl.Ridge(1.0))
    memory.remember(cases.old_tokens())
    cases.train(model, opt)
    drift = [layer.drift for layer in memory.forgetting().layers]
    expected = cases.whole_values(model)
    first, second = results(ranks, "sharded_forgetting_and_files")
    assert first["names"] == [layer.name for layer in memory.report().layers]
    assert max(drift) > 1e-6
    for found in (first, second):
        assert found["drift"] == pytest.approx(drift, rel=1e-9)
        assert largest_difference(found["halfway"], expected) < 1e-10
        # The loaded memory holds whole weights; each rank counts from its own rows of them.
        assert largest_difference(found["loaded"], expected) < 1e-10
        assert (found["merged"], found["tasks"]) == ("no error", 1)
        own, (other,) = found["warned"]
        assert own == []  # trained since remember, and saved like this
        assert "other weights than the model has in linear." in other
    assert first["bytes"] + second["bytes"] == memory.nbytes["reference"]


def test_an_evaluation_between_backward_and_step_hides_nothing(ranks: Ranks) -> None:
    assert max(results(ranks, "sharded_evaluation_before_a_step")) < 1e-12


def test_sharded_ranks_go_in_step_or_stop_together(ranks: Ranks) -> None:
    first, second = results(ranks, "sharded_and_uneven")
    for found in (first, second):
        assert "every rank must bring equally many" in found["fewer"]
        assert "remember got no batches" in found["none"]
        assert (found["tasks"], found["afterwards"]) == (0, 1)
    assert "every rank must bring equally many" in first["empty"]
    assert "batch 0 is empty" in second["empty"]
    assert "another rank failed" in first["nan"]
    assert "layer '0' received non-finite features" in second["nan"]


def test_what_cannot_be_sharded_is_refused_before_it_moves(ranks: Ranks) -> None:
    for found in results(ranks, "what_cannot_be_sharded"):
        assert "UnsupportedError" in found["transposed"]
        assert "(ConvTranspose1d) is sharded along its input channels" in found["transposed"]
        assert "sharded differently" in found["separate"]
        assert found["transposed moved"] == found["separate moved"] == 0.0
        assert "UnsupportedError" in found["parallel layers"]
        assert "'0' computes with weights in pieces" in found["parallel layers"]
        assert "call remember before it is taken apart" in found["parallel layers"]


def test_norm_anchors_made_before_sharding_pull_at_shards(ranks: Ranks) -> None:
    model = cases.norm_stack()
    memory, opt = protected(model, optimizer="adamw", acts_on="displacement")
    memory.remember([cases.rows()])
    for _ in range(4):
        opt.zero_grad()
        model(cases.rows().flip(1) * 2).square().sum().backward()
        opt.step()
    for found in results(ranks, "remembered_before_sharding"):
        assert largest_difference(found["values"], cases.whole_values(model)) < 1e-10
        assert found["gradients kept"]
