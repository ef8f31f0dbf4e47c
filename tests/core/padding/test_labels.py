"""Which loss weighs outputs when a batch brings labels, and labels that do not count."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import nscl
from nscl.core.padding.labels import labels_in
from tests.core.padding.texts import Reader, assert_same, memory_of, padded

pytestmark = pytest.mark.filterwarnings("ignore:no optimizer is protected:nscl.NsclWarning")

TEXTS = [[1, 2, 3, 4], [4, 3], [2, 2, 0]]


def labelled(positions: int, *, ignore: bool = True, left: bool = False) -> dict[str, Any]:
    batch = padded(TEXTS, positions, left=left)
    labels = batch["input_ids"] % 5
    if ignore:
        labels = labels.masked_fill(batch["attention_mask"] == 0, -100)
    return {**batch, "labels": labels}


def own(output: Any, batch: Any) -> Tensor:
    loss: Tensor = output["loss"]
    return loss


def drawn(batch: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in batch.items() if key != "labels"}


def differs(one: nscl.Memory, other: nscl.Memory, part: str) -> bool:
    a, b = (m.state_dict()["tensors"][part] for m in (one, other))
    return not torch.allclose(a, b, rtol=1e-6)


def test_a_batch_with_labels_is_weighed_by_the_models_own_loss() -> None:
    torch.manual_seed(0)
    model, batch = Reader(), labelled(6)
    own_way = memory_of(model, batch)
    assert_same(own_way, memory_of(model, batch, loss=own))
    assert differs(own_way, memory_of(model, drawn(batch)), "gradient/head")
    assert differs(own_way, memory_of(model, drawn(batch)), "fisher/norm.weight")


def test_what_is_asked_for_comes_before_the_models_own_loss() -> None:
    torch.manual_seed(0)
    model, batch = Reader(), labelled(6)
    by_draw = memory_of(model, batch, likelihood="categorical")
    assert_same(by_draw, memory_of(model, drawn(batch)))
    other: Any = {"loss": lambda output, batch: output["logits"].square().mean()}
    by_loss = memory_of(model, batch, **other)
    assert differs(by_loss, memory_of(model, batch), "gradient/head")
    assert_same(by_loss, memory_of(model, batch, likelihood="categorical", **other))


def test_anchors_alone_go_by_the_models_own_loss_too() -> None:
    torch.manual_seed(0)
    model, batch = Reader(), labelled(6)

    def memory(batch: Any, **options: Any) -> nscl.Memory:
        found = nscl.Memory(model, rule=nscl.Energy(0.01), factors="input")
        found.remember([batch], **options)
        return found

    assert_same(memory(batch), memory(batch, loss=own))
    assert differs(memory(batch), memory(drawn(batch)), "fisher/norm.weight")


def test_labels_of_padded_positions_do_not_count() -> None:
    torch.manual_seed(0)
    model = Reader()
    truth = memory_of(model, labelled(4))
    assert_same(truth, memory_of(model, labelled(7)))
    careless = labelled(7, ignore=False)
    before = careless["labels"].clone()
    assert_same(truth, memory_of(model, careless))
    assert torch.equal(careless["labels"], before)  # the user's batch stays as it is


class Writer(Reader):
    """Compares each position with the next label, as models that generate text do."""

    def __init__(self) -> None:
        super().__init__(absolute=False)

    def can_generate(self) -> bool:
        return True

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None
    ) -> dict[str, Tensor]:
        output = super().forward(input_ids, attention_mask)
        if labels is not None:
            logits = output["logits"][:, :-1].flatten(0, 1)
            output["loss"] = F.cross_entropy(logits, labels[:, 1:].flatten())
        return output


@pytest.mark.parametrize("left", [False, True])
def test_no_padded_position_predicts_a_label(left: bool) -> None:
    torch.manual_seed(0)
    model = Writer()
    short, wide = (memory_of(model, labelled(n, ignore=False, left=left)) for n in (4, 7))
    assert_same(short, wide)
    assert_same(short, memory_of(model, labelled(5)))


def test_positions_without_a_label_enter_no_gradient() -> None:
    torch.manual_seed(0)
    model, batch = Reader(), labelled(4)
    batch["labels"][:, :2] = -100
    counted = (batch["labels"] != -100).flatten()
    memory = memory_of(model, batch)
    logits = model(**drawn(batch))["logits"].flatten(0, 1).detach().requires_grad_()
    loss = 3 * F.cross_entropy(logits, batch["labels"].flatten())
    (rows,) = torch.autograd.grad(loss, logits)
    assert not rows[~counted].any()
    found = memory.state_dict()["tensors"]["gradient/head"]
    truth = (rows.T @ rows)[*torch.tril_indices(5, 5)]
    assert torch.allclose(found.flatten().sort().values, truth.sort().values, rtol=1e-12)


def test_a_batch_in_which_no_label_counts_adds_no_gradient() -> None:
    torch.manual_seed(0)
    model, batch = Reader(), labelled(4)
    empty = {**batch, "labels": torch.full_like(batch["labels"], -100)}
    assert torch.isnan(model(**empty)["loss"])
    tensors = memory_of(model, empty).state_dict()["tensors"]
    assert not tensors["gradient/head"].any()
    assert tensors["covariance/head"].any()


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        ({"labels": torch.ones(2)}, 1),
        ({"start_positions": torch.ones(2), "end_positions": torch.ones(2)}, 2),
        ({"next_sentence_label": torch.ones(2), "input_ids": torch.ones(2)}, 1),
        ({"labels": None, 3: torch.ones(2)}, 0),
        ((torch.ones(2), torch.ones(2)), 0),
    ],
)
def test_labels_of_a_batch(batch: Any, count: int) -> None:
    assert len(labels_in(batch)) == count
