"""A loss without labels for every output, and the samples it is a mean over for every batch."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import nscl
from nscl.core.capture.losses import default_loss, samples_of
from nscl.errors import FeatureError
from tests.core.memories import remembered, same

LOGITS = torch.tensor([[2.0, 0.0], [0.0, 1.0]], requires_grad=True)
CROSS_ENTROPY = F.cross_entropy(LOGITS, torch.tensor([0, 1]))
SQUARED = (2.0**2 + 1.0**2) / 2


@pytest.mark.parametrize(
    "output", [LOGITS, {"logits": LOGITS}, SimpleNamespace(logits=LOGITS), {"logits": LOGITS[None]}]
)
def test_logits_are_their_own_labels(output: Any) -> None:
    assert float(default_loss(output).detach()) == pytest.approx(float(CROSS_ENTROPY.detach()))


@pytest.mark.parametrize(
    "output",
    [
        (LOGITS, torch.ones(3)),
        [torch.tensor([1]), LOGITS],
        {"hidden": LOGITS},
        LOGITS[..., None],
        LOGITS.flatten()[[0, 3], None],
        LOGITS.flatten()[[0, 3]],
        {"logits": "none", "x": {"deep": LOGITS}},
    ],
)
def test_other_outputs_are_held_by_their_squared_norm(output: Any) -> None:
    assert float(default_loss(output).detach()) == pytest.approx(SQUARED)


def test_all_outputs_that_can_move_are_held() -> None:
    other = torch.tensor([[3.0], [0.0], [0.0]], requires_grad=True)
    output = {"boxes": LOGITS, "masks": [other, torch.ones(2)], "ids": torch.arange(2)}
    assert float(default_loss(output).detach()) == pytest.approx(SQUARED + 9 / 3)


@pytest.mark.parametrize("output", [torch.arange(3), None, "text", [], {"ids": torch.arange(2)}])
def test_an_output_without_numbers_asks_for_a_loss(output: Any) -> None:
    with pytest.raises(FeatureError, match="no floating-point tensor: give remember a loss"):
        default_loss(output)


def test_outputs_in_half_precision_are_summed_in_single() -> None:
    output = torch.full((2, 300, 300), 2.0, dtype=torch.float16)
    assert default_loss(output) == 4.0 * 300 * 300


Pick = Callable[[nn.Module, Any], Any]
NAMED = {"edges": torch.ones(2, 5), "x": torch.randn(64, 3)}
PACKED: dict[str, tuple[Any, Pick]] = {
    "tuple": ((NAMED["x"], torch.zeros(64)), lambda m, b: m(b[0])),
    "deep": ({"inputs": {"x": NAMED["x"]}}, lambda m, b: m(b["inputs"]["x"])),
    "list of dicts": ([{"x": NAMED["x"]}], lambda m, b: m(b[0]["x"])),
    "task first": ((torch.tensor(3), NAMED["x"]), lambda m, b: m(b[1])),
    "tasks first": ((torch.tensor([3]), NAMED["x"]), lambda m, b: m(b[1])),
    "edges first": (NAMED, lambda m, b: m(b["x"])),
    "an object": (SimpleNamespace(x=NAMED["x"]), lambda m, b: m(b.x)),
    "named logits": (NAMED, lambda m, b: {"scale": torch.ones(1), "logits": m(b["x"])}),
}


@pytest.mark.filterwarnings("ignore::nscl.NsclWarning")
@pytest.mark.parametrize(("batch", "forward"), PACKED.values(), ids=PACKED.keys())
def test_how_a_batch_is_packed_does_not_matter(batch: Any, forward: Pick) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 3))
    plain, packed = nscl.Memory.adam_nscl(model), nscl.Memory.adam_nscl(model)
    plain.remember([NAMED["x"]])
    packed.remember([batch], forward=forward)
    assert same(remembered(packed), remembered(plain))


@pytest.mark.parametrize(
    ("output", "batch", "count"),
    [
        (torch.ones(12, 5), torch.ones(4, 3), 4),  # a tensor speaks for itself
        ({"logits": torch.ones(4, 3, 5)}, {"ids": torch.ones(4, 3)}, 4),
        ((torch.tensor(1.0), torch.ones(6, 2)), {"x": torch.ones(2, 6)}, 6),
        ([torch.ones(9), torch.ones(6, 2, requires_grad=True)], (torch.ones(1),), 6),
        ((torch.ones(0, 4), torch.tensor(2.0)), (torch.ones(3),), 3),
        (None, [{"x": torch.ones(7, 1)}], 7),
    ],
)
def test_samples_are_the_outputs_rows_unless_the_batch_is_a_tensor(
    output: Any, batch: Any, count: int
) -> None:
    assert samples_of(output, batch) == count
