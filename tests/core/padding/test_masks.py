"""Masks that cannot be one are refused in one line, and nothing is lost."""

from typing import Any

import pytest
import torch

import nscl
from nscl.errors import FeatureError
from tests.core.memories import rows_seen
from tests.core.padding.texts import Reader, memory_of, padded

pytestmark = pytest.mark.filterwarnings("ignore:no optimizer is protected:nscl.NsclWarning")

TEXTS = [[1, 2, 3], [4, 5]]


def remembering(model: Reader, batch: Any, **options: Any) -> tuple[nscl.Memory, str]:
    """A memory of one task, and the error of the next, which must not change it."""
    memory = memory_of(model, padded(TEXTS, 3))
    before = {name: t.clone() for name, t in memory.state_dict()["tensors"].items()}
    with pytest.raises(FeatureError) as problem:
        memory.remember([padded(TEXTS, 3), batch], **options)
    after = memory.state_dict()["tensors"]
    assert memory.tasks == 1
    assert all(torch.equal(t, after[name]) for name, t in before.items())
    assert "\n" not in str(problem.value)
    return memory, str(problem.value)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(2, 1, 5, 5), r"mask of batch 1 has the shape (2, 1, 5, 5), where the batch b"),
        (torch.ones(2, 1, 5, 5), "begins with (2, 5)"),
        (torch.ones(5), "has the shape (5,), where the batch begins with (2, 5)"),
        (torch.ones(2, 7), "mask of batch 1 has the shape (2, 7), but the first layer was given"),
        (torch.ones(2, 7), "was given (2, 5): a mask is [batch, positions]"),
        (torch.ones(4, 5), "has the shape (4, 5), but the first layer was given (2, 5)"),
        (torch.zeros(2, 5), "marks no position as real"),
        (torch.full((2, 5), -1e9), "other values than 0 and 1: 1 means real"),
        (torch.tensor([[0, 1, 1, 1, 1], [0, 0, 0, -1, -1]]), "other values than 0 and 1"),
        ([[1, 1, 1, 1, 1]], "is a list: it must be a tensor"),
    ],
)
def test_a_mask_of_another_shape_names_both(mask: Any, message: str) -> None:
    _, text = remembering(Reader(), padded(TEXTS, 5), mask=lambda batch: fitting(batch, mask))
    assert message in text


def fitting(batch: Any, mask: Any) -> Any:
    return batch["attention_mask"] if batch["input_ids"].shape[1] == 3 else mask


@pytest.mark.parametrize("shape", [(2, 7), (2, 1, 5, 5)])
def test_a_mask_that_the_model_cannot_take_either_is_the_reason(shape: tuple[int, ...]) -> None:
    batch = {**padded(TEXTS, 5), "attention_mask": torch.ones(shape)}
    assert "mask of batch 1 has the shape" in remembering(Reader(), batch)[1]


def test_a_key_that_no_batch_has() -> None:
    memory = nscl.Memory(Reader())
    with pytest.raises(FeatureError, match=r"mask='real': batch 0 .*has no such key; give"):
        memory.remember([padded(TEXTS, 3)], mask="real")
    with pytest.raises(FeatureError, match="mask='real': batch 0"):
        memory.remember([(torch.zeros(2, 3),)], mask="real")


def test_the_mask_may_have_another_name() -> None:
    batch = padded(TEXTS, 4)
    renamed = {"ids": batch["input_ids"], "real": batch["attention_mask"]}
    memory = memory_of(Reader(), renamed, mask="real", forward=lambda m, b: m(b["ids"], b["real"]))
    assert rows_seen(memory, "body") == 5


@pytest.mark.parametrize("kind", [torch.bool, torch.int8, torch.float32])
def test_masks_of_any_numbers(kind: torch.dtype) -> None:
    batch = padded(TEXTS, 4)
    batch["attention_mask"] = batch["attention_mask"].to(kind)
    assert rows_seen(memory_of(Reader(), batch), "body") == 5


def test_a_mask_option_of_another_type() -> None:
    with pytest.raises(TypeError, match=r"mask must be the name of a key or a function .* not int"):
        nscl.Memory(Reader()).remember([padded(TEXTS, 3)], mask=3)  # type: ignore[arg-type]


def test_only_pooled_layers_may_be_protected() -> None:
    class Pooled(Reader):
        def forward(self, input_ids, attention_mask):  # type: ignore[no-untyped-def,override]
            words = self.words(input_ids) * attention_mask[..., None]
            return self.head(words.sum(1))

    free = ["words", "places", "body", "attention", "norm"]
    memory = nscl.Memory(Pooled(), exclude=free)
    memory.remember([padded(TEXTS, 5)])
    assert rows_seen(memory, "head") == 2


def test_several_sequences_per_sample() -> None:
    class Choosing(Reader):
        def forward(self, input_ids, attention_mask):  # type: ignore[no-untyped-def,override]
            output = super().forward(input_ids.flatten(0, 1), attention_mask.flatten(0, 1))
            return output["logits"][:, 0, 0].view(-1, 2)

    batch = padded([*TEXTS, *TEXTS], 5)
    choices = {key: value.view(2, 2, 5) for key, value in batch.items()}
    memory = memory_of(Choosing(), choices)
    assert rows_seen(memory, "body") == 10
    assert memory.state_dict()["metadata"]["gradients"]["body"]["rows"] == 2
