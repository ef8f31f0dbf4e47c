"""The promise of ``distributed``: two ranks train, remember and recall as one process does."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from tests.core.distributed import parallel_models as cases
from tests.core.distributed.parallel_launch import Ranks, largest_difference, results

LOOKS = ("forgetting", "state_dict", "remember")


@cache
def alone(rule: str, every: int) -> dict[str, Any]:
    model = cases.build(cases.Reader)
    memory, optimizer = cases.protected(model, rule=cases.PROXIMAL[rule], every=every)
    return cases.two_tasks(model, memory, optimizer, slice(None))


def assert_close(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Sums of C, G and F, weights and all else that a memory keeps."""
    assert one["tensors"].keys() == other["tensors"].keys()
    for name, tensor in one["tensors"].items():
        scale = float(other["tensors"][name].abs().max())
        torch.testing.assert_close(
            tensor, other["tensors"][name], rtol=1e-10, atol=1e-12 * scale, msg=name
        )
    assert one["metadata"]["batches"] == other["metadata"]["batches"]
    for name, seen in one["metadata"]["gradients"].items():
        assert seen["rows"] == other["metadata"]["gradients"][name]["rows"]


@pytest.mark.parametrize("rule", cases.PROXIMAL)
@pytest.mark.parametrize(
    ("wrapper", "every"), [("ddp", 1), ("ddp", 3), ("fsdp", 2), ("fsdp at once", 2)]
)
def test_two_ranks_train_as_one_process(ranks: Ranks, wrapper: str, every: int, rule: str) -> None:
    expected = alone(rule, every)
    free = alone(rule, 1000)  # nothing is treated before somebody looks
    names = {name.partition("/")[0] for name in expected["first"]["tensors"]}
    assert names == {"covariance", "gradient", "fisher", "pull", "reference"}
    for found in results(ranks, f"{wrapper} {rule} {every}"):
        assert_close(found["first"], expected["first"])
        assert_close(found["second"], expected["second"])
        assert found["forgetting"] == pytest.approx(expected["forgetting"], rel=1e-9)
        assert (found["state_dict"], found["remember"]) == (1, expected["remember"])
        for key in (
            "values",
            *(f"{when} {look}" for when in ("before", "after") for look in LOOKS),
        ):
            assert largest_difference(found[key], expected[key]) < 1e-11, key
    first, second = (found["values"] for found in results(ranks, f"{wrapper} {rule} {every}"))
    assert largest_difference(first, second) == 0.0
    # The rule is felt, and where steps wait, a look at the weights moves them.
    key = "before forgetting"
    assert largest_difference(expected[key], free[key]) > 1e-4
    for look in LOOKS:
        moved = largest_difference(expected[f"before {look}"], expected[f"after {look}"])
        assert (moved > 1e-6) == (every > 1), look


def test_a_rank_without_data_has_both_factors_too(ranks: Ranks) -> None:
    memory, _optimizer = cases.protected(cases.build(cases.Reader), rule=cases.PROXIMAL["penalty"])
    memory.remember(cases.sentences(0), loss=cases.squares)
    for found in results(ranks, "data on one rank"):
        assert_close(found, memory.state_dict())


@pytest.mark.parametrize("wrapper", ["ddp", "fsdp", "fsdp at once"])
def test_evaluations_in_between_change_nothing(ranks: Ranks, wrapper: str) -> None:
    model = cases.build(cases.Reader)
    memory, optimizer = cases.protected(model, rule=cases.PROXIMAL["penalty"], every=4)
    expected = cases.looked_at(model, memory, optimizer, slice(None))
    for found in results(ranks, f"looked at {wrapper}"):
        assert largest_difference(found["values"], expected["values"]) < 1e-11
        assert float((found["answer"] - expected["answer"]).abs().max()) < 1e-11


@pytest.mark.parametrize("wrapper", ["ddp", "fsdp", "fsdp at once"])
def test_recall_is_what_a_copy_answers(ranks: Ranks, wrapper: str) -> None:
    for found in results(ranks, f"recall {wrapper}"):
        assert torch.equal(found["recalled"], found["expected"])
        assert torch.equal(found["again"], found["expected"])
        assert largest_difference(found["before"], found["after"]) == 0.0
        assert found["modes"]
        assert found["same parameters"]
        recalled, copied = found["gradients"]
        assert largest_difference(recalled, copied) == 0.0
        assert max(float(g.abs().max()) for g in recalled.values()) > 1e-3
        moved = found["now"] - found["recalled"]
        assert float(moved.abs().max()) > 1e-2
        drift = float(moved.square().sum(1).mean())
        assert found["forgetting"]["probe"]["drift"] == pytest.approx(drift, rel=1e-12)
        assert [one["name"] for one in found["forgetting"]["parameters"]] == [
            "batch_norm",
            "layer_norm",
        ]
        assert found["forgetting"]["uncounted"] == ()
        assert "shapes cannot be multiplied" in found["wrong"]


def test_the_reader_has_every_kind_of_norm_and_layer() -> None:
    kinds = {type(module) for module in cases.build(cases.Reader).children()}
    assert {nn.Embedding, nn.MultiheadAttention, nn.ConvTranspose1d, nn.RMSNorm} < kinds
