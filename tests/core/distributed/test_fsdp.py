"""Shards of FSDP2: what each rank does to its rows is what one process does to the whole."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed.tensor import Shard

import nscl
from nscl.core.distributed import fsdp
from nscl.errors import UnsupportedError
from tests.core.distributed import parallel_models as cases
from tests.core.distributed.parallel_launch import Ranks, largest_difference, results
from tests.core.distributed.parallel_models import protected
from tests.core.promises.test_two_ranks import alone, assert_close


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


def test_norm_layers_are_anchored_in_shards(ranks: Ranks) -> None:
    model = cases.norm_stack()
    memory, optimizer = cases.protected(model, optimizer="adamw", acts_on="displacement")
    memory.remember(cases.row_batches())
    state = memory.state_dict()
    assert state["tensors"]["fisher/1.bias"].abs().min() > 0
    for _ in range(4):
        optimizer.zero_grad()
        model(cases.rows().flip(1) * 2).square().sum().backward()
        optimizer.step()
    for found in results(ranks, "sharded norms"):
        assert_close(found["state"], state)
        assert largest_difference(found["values"], cases.whole_values(model)) < 1e-10


def test_a_pass_over_shards_leaves_nothing_behind(ranks: Ranks) -> None:
    for found in results(ranks, "sharded norms"):
        assert found["after"] == found["before"]
        assert found["after"]["frozen"] == ["1.bias"]
        assert (found["after"]["whole"], found["after"]["gathered"]) == (0, 0)
        assert (found["after"]["gradients"], found["after"]["states"]) == (0, ["IDLE"])


def test_no_rank_goes_backward_alone(ranks: Ranks) -> None:
    first, second = results(ranks, "problems on one rank")
    assert "the loss of batch 0 is not finite" in second["loss"]
    assert "gradient at the output of layer 'out' is not finite in batch 0" in second["gradient"]
    for name in ("loss", "gradient"):
        assert "another rank failed" in first[name]
    expected = alone("penalty", 2)
    for found in (first, second):
        assert "the model could not take batch 0" in found["forward"]
        assert (found["tasks"], found["left"]["whole"], found["left"]["gathered"]) == (0, 0, 0)
        assert found["left"]["states"] == ["IDLE"]
        assert largest_difference(found["values"], expected["values"]) < 1e-11


@dataclass
class Cut:
    """A dimension 0 as FSDP2 cuts it, without any process."""

    shape: torch.Size
    ranks: int
    rank: int

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def placements(self) -> list[Shard]:
        return [Shard(0)]

    @property
    def device_mesh(self) -> "Cut":
        return self

    def size(self, dim: int) -> int:
        return self.ranks

    def get_local_rank(self, dim: int) -> int:
        return self.rank


@pytest.mark.parametrize("rows", [1, 5, 6, 7])
@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_local_rows_are_those_of_torchs_own_chunks(rows: int, world: int) -> None:
    chunks = torch.arange(rows).chunk(world)
    for rank in range(world):
        part: Any = Cut(torch.Size((rows, 4)), world, rank)
        start, stop = fsdp.local_rows("weight", part)
        mine = chunks[rank].tolist() if rank < len(chunks) else []
        assert list(range(start, stop)) == mine
        assert fsdp.is_sharded(part) == (world > 1)


def test_other_cuts_than_of_dimension_0_are_refused() -> None:
    part: Any = SimpleNamespace(ndim=2, shape=(4, 4), placements=[Shard(1)])
    with pytest.raises(UnsupportedError, match=r"'weight' is sharded as .*shards of dimension 0"):
        fsdp.local_rows("weight", part)


def test_a_parameter_in_one_piece_is_local_and_whole() -> None:
    parameter, change = torch.zeros(3, 2), torch.ones(3, 2)
    assert fsdp.local(parameter) is fsdp.whole(parameter) is parameter
    assert fsdp.gathered(change, parameter) is change
    fsdp.add_part(change, "weight", parameter)
    assert torch.equal(parameter, change)
    assert fsdp.local_rows("scale", torch.ones(())) == (0, 1)
    single = torch.zeros((), dtype=torch.bfloat16)
    part = fsdp.part_of(torch.tensor(2.0, dtype=torch.float64), "scale", single)
    assert (float(part), part.dtype) == (2.0, torch.bfloat16)
