"""Covariances of two ranks are those of all rows; sketches are the merge of the two parts."""

import pytest
import torch

import nscl
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
