"""KeepMemory under the real Trainer: protected, saved, resumed and remembered."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import nscl

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from nscl.integrations.transformers import KeepMemory, batches_of  # noqa: E402

LENGTH, WORDS = 6, 40


class Texts(Dataset[dict[str, Any]]):
    """Sentences of ``words``; the label says which half of the words is more frequent."""

    def __init__(self, words: range, size: int = 48) -> None:
        draw = torch.Generator().manual_seed(words.start)
        self.ids = torch.randint(words.start, words.stop, (size, LENGTH), generator=draw)
        middle = (words.start + words.stop) / 2
        self.labels = ((self.ids.double() - middle).sum(1) > 0).long()
        self.lengths = torch.randint(3, LENGTH + 1, (size,), generator=draw)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        length = int(self.lengths[index])
        return {"input_ids": self.ids[index, :length].tolist(), "label": int(self.labels[index])}


def padded(items: list[dict[str, Any]]) -> dict[str, Tensor]:
    """What DataCollatorWithPadding does, without a tokenizer."""
    longest = max(len(item["input_ids"]) for item in items)
    fill = [[0] * (longest - len(item["input_ids"])) for item in items]
    ids = [item["input_ids"] + rest for item, rest in zip(items, fill, strict=True)]
    mask = [[1] * len(item["input_ids"]) + rest for item, rest in zip(items, fill, strict=True)]
    labels = torch.tensor([item["label"] for item in items])
    return {
        "input_ids": torch.tensor(ids),
        "attention_mask": torch.tensor(mask),
        "labels": labels,
    }


FIRST, SECOND = Texts(range(1, 20)), Texts(range(20, 40))


def tiny_bert() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=WORDS,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=LENGTH,
    )
    torch.manual_seed(0)
    model: nn.Module = transformers.BertForSequenceClassification(config)
    return model


def trainer(model: nn.Module, folder: Path, *callbacks: Any, **options: Any) -> Any:
    data = options.pop("train_dataset", SECOND)
    model_init = options.pop("model_init", None)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        per_device_train_batch_size=8,
        learning_rate=3e-3,
        **{"save_strategy": "no", "num_train_epochs": 3, **options},
    )
    return transformers.Trainer(
        model,
        arguments,
        train_dataset=data,
        eval_dataset=FIRST,
        data_collator=padded,
        callbacks=list(callbacks),
        model_init=model_init,
    )


@torch.no_grad()
def answers(model: nn.Module, texts: Texts) -> Tensor:
    model.eval()
    logits: Tensor = model(**{k: v for k, v in padded(list(texts)).items() if k != "labels"}).logits  # type: ignore[call-overload]
    return logits


def learned_first(folder: Path, **options: Any) -> tuple[nn.Module, nscl.Memory]:
    """A model that was trained on the first texts and has remembered them."""
    model = tiny_bert()
    memory = nscl.Memory(model, **options)
    keep = KeepMemory(memory, remember=True)
    trainer(model, folder, keep, train_dataset=FIRST).train()
    return model, memory


def moved(model: nn.Module, before: Tensor) -> float:
    return float((answers(model, FIRST) - before).norm() / before.norm())


def test_the_second_texts_are_learned_and_the_first_ones_kept(tmp_path: Path) -> None:
    changed, losses = [], []
    for protected in (False, True):
        model, memory = learned_first(tmp_path / "first")
        assert memory.tasks == 1
        before = answers(model, FIRST)
        keep = [KeepMemory(memory)] if protected else []
        run = trainer(model, tmp_path / "second", *keep)
        losses.append(run.train().training_loss)
        changed.append(moved(model, before))
    assert changed[1] < 0.5 * changed[0]
    assert losses[1] < 0.72


def test_a_hard_rule_holds_every_answer(tmp_path: Path) -> None:
    """Few sentences leave directions free: what was answered to them does not move at all."""
    model = tiny_bert()
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-10), norms="freeze")
    few = Texts(range(1, 6), size=3)
    before = answers(model, few)
    batch = {k: v for k, v in padded(list(few)).items() if k != "labels"}  # type: ignore[call-overload]
    run = trainer(model, tmp_path, KeepMemory(memory))
    with pytest.warns(nscl.NsclWarning, match="no optimizer is protected"):
        memory.remember([batch])
    run.train()
    assert (answers(model, few) - before).abs().max() < 1e-4


class KilledError(Exception):
    """In the place of a power cut."""


class At(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    """Does something at the end of one step, after all other callbacks."""

    def __init__(self, step: int, action: Callable[[Any], None]) -> None:
        self.step, self.action = step, action

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            self.action(control)


def kill(control: Any) -> None:
    raise KilledError


def save(control: Any) -> None:
    control.should_save = True


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# Saved on time, the steps that wait are treated first; saved late, they are part of the checkpoint.
@pytest.mark.parametrize("late", [False, True])
def test_a_killed_training_resumes_bit_for_bit(tmp_path: Path, late: bool) -> None:
    options: dict[str, Any] = {"num_train_epochs": 2, "seed": 1}
    options |= {} if late else {"save_strategy": "steps", "save_steps": 7}
    more = [At(7, save)] if late else []

    def start(folder: str, *callbacks: Any, **train: Any) -> tuple[Any, Any]:
        model = tiny_bert()
        memory = nscl.Memory(model, every=5)
        memory.load_state_dict(remembered)
        model.load_state_dict(weights)
        keep = KeepMemory(memory, remember=True)
        run = trainer(model, tmp_path / folder, keep, *more, *callbacks, **options)
        try:
            run.train(**train)
        finally:
            waiting.append(keep.resumable.state_dict()["waiting"])
        return model.state_dict(), memory.state_dict()["tensors"]

    waiting: list[Any] = []
    model, memory = learned_first(tmp_path / "first", every=5)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    remembered = memory.state_dict()
    whole = start("whole")
    with pytest.raises(KilledError):
        start("killed", At(9, kill))
    assert waiting[1][0]["steps"] == (4 if late else 2)
    saved = tmp_path / "killed" / "checkpoint-7"
    assert ('"steps": 2' in (saved / "memory_waiting.json").read_text()) == late
    resumed = start("killed", resume_from_checkpoint=True)
    assert same(whole[0], resumed[0])
    assert same(whole[1], resumed[1])


def test_nothing_waits_when_evaluating_and_at_the_end(tmp_path: Path) -> None:
    class Waiting(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            seen.append(keep.resumable.state_dict()["waiting"][0]["steps"])

        on_train_end = on_prediction_step

    seen: list[int] = []
    model, memory = learned_first(tmp_path / "first")
    keep = KeepMemory(memory)
    options = {"eval_strategy": "steps", "eval_steps": 4, "max_steps": 10}
    trainer(model, tmp_path / "second", keep, Waiting(), **options).train()
    assert len(seen) > 3
    assert not any(seen)


def test_a_data_set_goes_through_the_collator_of_the_trainer(tmp_path: Path) -> None:
    rows = []
    for asked in (FIRST, True, DataLoader(FIRST, 5, collate_fn=padded)):
        memory = nscl.Memory(tiny_bert())
        keep = KeepMemory(memory, remember=asked, temperature=2.0)
        trainer(memory.model, tmp_path, keep, train_dataset=FIRST, max_steps=1).train()
        blocks = memory.state_dict()["metadata"]["blocks"]
        rows.append(blocks["classifier"]["seen"]["rows"])
    assert rows == [len(FIRST)] * 3


def test_columns_that_the_trainer_drops_are_dropped() -> None:
    class Table(Texts):
        """As of the library datasets: named columns, of which some can be selected."""

        column_names = ("text", "input_ids", "label")

        def select_columns(self, names: list[str]) -> list[str]:
            return names

    class Trained:
        dataset = Table(range(1, 5))
        collate_fn = staticmethod(padded)

    Trained.dataset.column_names = ("input_ids", "label")
    args = transformers.TrainingArguments(report_to=[], use_cpu=True)
    loader = batches_of(Table(range(1, 5)), Trained, args)
    assert loader.dataset.dataset == ["input_ids", "label"]
    stream = iter([])
    assert batches_of(stream, Trained, args) is stream


def test_resuming_without_the_memory_of_this_run_is_refused(tmp_path: Path) -> None:
    def run(*callbacks: Any, **train: Any) -> None:
        model = tiny_bert()
        keep = KeepMemory(nscl.Memory(model), **train)
        options = {"save_strategy": "steps", "save_steps": 3, "max_steps": 6}
        resume = {"resume_from_checkpoint": str(tmp_path / "one" / "checkpoint-3")}
        folder = tmp_path / ("two" if callbacks else "one")
        trainer(model, folder, keep, **options).train(**resume if callbacks else {})

    run()
    with pytest.raises(nscl.NsclError, match=r"resumes at step 3, and .*two.* has no memory"):
        run(1)
    run(1, resume_from=tmp_path / "one" / "checkpoint-3")
    assert (tmp_path / "two" / "checkpoint-6" / "memory.safetensors").exists()


def test_an_optimizer_that_does_not_exist_yet(tmp_path: Path) -> None:
    model = tiny_bert()
    memory = nscl.Memory(model)
    run = trainer(model, tmp_path)
    with pytest.raises(TypeError, match=r"nscl.integrations.transformers.KeepMemory"):
        memory.protect(run.optimizer)


def test_training_twice_protects_the_optimizer_once(tmp_path: Path) -> None:
    model, memory = learned_first(tmp_path)
    keep = KeepMemory(memory)
    run = trainer(model, tmp_path, keep, max_steps=2)
    run.train()
    run.train()
    assert [p.active for p in keep.resumable.protections] == [True]
    assert len(memory.report().optimizers) == 1


def test_a_memory_that_no_file_can_hold_is_refused_before_training(tmp_path: Path) -> None:
    model = tiny_bert()
    memory = nscl.Memory(model, projector=lambda block: None)  # type: ignore[arg-type, return-value]
    run = trainer(model, tmp_path, KeepMemory(memory), save_strategy="steps")
    with pytest.raises(nscl.NsclError, match="cannot be saved in checkpoints"):
        run.train()


def test_a_model_that_the_trainer_makes_is_not_the_memorys(tmp_path: Path) -> None:
    keep = KeepMemory(nscl.Memory(tiny_bert()))
    run = trainer(None, tmp_path, keep, model_init=tiny_bert)  # type: ignore[arg-type]
    with pytest.raises(nscl.errors.ProtectionError, match="none of them belongs"):
        run.train()
