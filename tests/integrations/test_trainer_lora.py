"""A real LoRA under the real Trainer: prepared by the callback, saved and resumed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import nscl

pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

from nscl.integrations.transformers import KeepMemory, prepare_adapters  # noqa: E402
from tests.integrations.test_transformers import (  # noqa: E402
    SECOND,
    At,
    KilledError,
    Texts,
    answers,
    kill,
    padded,
    same,
    tiny_bert,
    trainer,
)

FEW = Texts(range(1, 6), size=3)  # few sentences leave directions free
pytestmark = [
    pytest.mark.filterwarnings("ignore:no optimizer is protected:nscl.NsclWarning"),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),  # PEFT asks it
]


def adapted() -> tuple[nn.Module, nscl.Memory]:
    """A base model that has remembered the few, and an untouched LoRA around it."""
    model = tiny_bert()
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-10), norms="freeze")
    memory.remember([{k: v for k, v in padded(list(FEW)).items() if k != "labels"}])  # type: ignore[call-overload]
    torch.manual_seed(1)
    config = peft.LoraConfig(r=4, lora_alpha=16, target_modules=["query", "value"])
    return peft.get_peft_model(model, config), memory


def test_the_callback_prepares_the_adapters(tmp_path: Path) -> None:
    changed, losses = [], []
    for protected in (False, True):
        model, memory = adapted()
        before = answers(model, FEW)
        keep = [KeepMemory(memory)] if protected else []
        run = trainer(model, tmp_path / "run", *keep, num_train_epochs=8)
        losses.append(run.train().training_loss)
        changed.append(float((answers(model, FEW) - before).abs().max()))
    assert changed[1] < 0.01 * changed[0]
    assert losses[1] < 0.72


def test_a_killed_lora_resumes_bit_for_bit(tmp_path: Path) -> None:
    options: dict[str, Any] = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": 7}

    def start(folder: str, *callbacks: Any, **train: Any) -> tuple[Any, Any]:
        model, memory = adapted()
        keep = KeepMemory(memory, remember=SECOND)
        trainer(model, tmp_path / folder, keep, *callbacks, seed=1, **options).train(**train)
        return model.state_dict(), memory.state_dict()["tensors"]

    whole = start("whole")
    with pytest.raises(KilledError):
        start("killed", At(9, kill))
    resumed = start("killed", resume_from_checkpoint=True)
    assert same(whole[0], resumed[0])
    assert same(whole[1], resumed[1])


def test_training_on_after_the_end_prepares_nothing_twice(tmp_path: Path) -> None:
    model, memory = adapted()
    keep = KeepMemory(memory)
    before = answers(model, FEW)
    for folder in ("one", "two"):
        trainer(model, tmp_path / folder, keep, num_train_epochs=1).train()
    assert float((answers(model, FEW) - before).abs().max()) < 1e-5


def test_adapters_are_left_alone_while_nothing_is_remembered() -> None:
    base = tiny_bert()
    memory = nscl.Memory(base)
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["query"]))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    prepare_adapters(model, memory)
    assert same(before, model.state_dict())
    with pytest.raises(nscl.NsclError, match="nothing is remembered yet"):
        nscl.integrations.peft.prepare(model, memory)
