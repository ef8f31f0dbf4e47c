"""The three recipes on MiniLM: real weights, inputs of low rank, a hard rule."""

import copy
from typing import Any

import pytest
import torch

peft = pytest.importorskip("peft")
pytest.importorskip("transformers")

import nscl  # noqa: E402
from nscl.integrations.peft import merge_and_unload, prepare  # noqa: E402
from tests.integrations.models import Encoder  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:no optimizer is protected"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
TEXTS = [
    ["what is the balance of my account", "freeze my card", "pay the bill"],
    ["play some music", "set an alarm for six", "turn the volume up"],
    ["book a flight to rome", "where is the nearest bank", "how is the weather"],
]
OTHERS = ("key", "intermediate", "output.dense")
# Frozen in these tests, so that nothing need be remembered of them.
EXCLUDE = ["encoder.embeddings", *(f"encoder.encoder.layer.*.{name}" for name in OTHERS)]


@pytest.fixture(scope="module")
def remembered() -> tuple[Encoder, nscl.Memory]:
    """MiniLM with three heads, and a memory of the first texts."""
    model = Encoder(heads=3).double()
    model.encoder.embeddings.requires_grad_(False)
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-10), norms="freeze", exclude=EXCLUDE)
    with pytest.warns(nscl.NsclWarning, match="no optimizer"):
        remember(model, memory, 0)
    return model, memory


def remember(model: Encoder, memory: nscl.Memory, task: int) -> None:
    batch = model.tokens(TEXTS[task])
    memory.remember([batch], forward=lambda model, batch: model(**batch, task=task))


def answers(model: Encoder, task: int) -> torch.Tensor:
    with torch.no_grad():
        return model(**model.tokens(TEXTS[task]), task=task)


def moved(model: Encoder, before: torch.Tensor, task: int = 0) -> float:
    return float((answers(model, task) - before).abs().max())


def lora(r: int = 8) -> Any:
    return peft.LoraConfig(r=r, target_modules=["query", "value"])


def wrap(model: Encoder, r: int = 8) -> Any:
    torch.manual_seed(1)
    model.encoder = peft.get_peft_model(model.encoder, lora(r))
    return model.encoder


def train(model: Encoder, task: int, memory: nscl.Memory | None = None) -> tuple[float, float]:
    """The loss on the task's texts before and after; the heads stay as they are."""
    model.heads.requires_grad_(False)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=5e-3)
    protection = memory.protect(optimizer) if memory else None
    batch, labels = model.tokens(TEXTS[task]), torch.arange(3)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(**batch, task=task), labels)
        losses.append(float(loss.detach()))
        loss.backward()
        optimizer.step()
    if protection:
        protection.remove()
    return losses[0], losses[-1]


def share_of_plain(plain: Encoder, task: int, start: float, reached: float) -> float:
    """How much is reached of the fall of the loss that plain LoRA reaches from the same start."""
    before = answers(plain, 0)
    share = (start - reached) / (start - train(plain, task)[1])
    assert moved(plain, before) > 0.01  # which is what a memory is for
    print(f"reached {share:.1%} of plain LoRA's fall")  # for docs/integrations-peft.md
    return share


def test_recipe_one(remembered: tuple[Encoder, nscl.Memory]) -> None:
    plain = copy.deepcopy(remembered[0])
    model, memory = copy.deepcopy(remembered)
    before = answers(model, 0)
    prepare(wrap(model), memory)
    assert moved(model, before) < 1e-12
    start, reached = train(model, 1, memory)
    assert moved(model, before) < 1e-6
    wrap(plain)
    assert share_of_plain(plain, 1, start, reached) > 0.8


# 18 remembered tokens use 18 of the inputs that B has: without growing r must be much larger.
@pytest.mark.parametrize(("r", "grows"), [(64, False), (8, True)])
def test_recipe_two(remembered: tuple[Encoder, nscl.Memory], r: int, grows: bool) -> None:
    model, memory = copy.deepcopy(remembered)
    before = [answers(model, 0)]
    prepare(wrap(model, r), memory)
    train(model, 1, memory)
    remember(model, memory, 1)
    before.append(answers(model, 1))
    plain = copy.deepcopy(model)
    if grows:
        model.encoder.add_adapter("second", lora())
        model.encoder.base_model.set_adapter(["default", "second"])
        prepare(model.encoder, memory)
    start, reached = train(model, 2, memory)
    assert all(moved(model, was, old) < 1e-6 for old, was in enumerate(before))
    assert share_of_plain(plain, 2, start, reached) > 0.8


def test_recipe_three(remembered: tuple[Encoder, nscl.Memory]) -> None:
    model, memory = copy.deepcopy(remembered)
    before = [answers(model, 0)]
    for task in (1, 2):
        plain = copy.deepcopy(model)
        adapted = wrap(model)
        prepare(adapted, memory)
        start, reached = train(model, task, memory)
        assert merge_and_unload(adapted, memory) is model.encoder
        remember(model, memory, task)
        assert all(moved(model, was, old) < 1e-6 for old, was in enumerate(before))
        before.append(answers(model, task))
        wrap(plain)
        assert share_of_plain(plain, task, start, reached) > 0.8
