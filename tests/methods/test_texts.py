"""Every method on a stream of texts: it learns, resumes bit for bit, keeps tokens and masks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from nscl.data.inputs import Inputs, count, rows
from nscl.errors import NsclError
from nscl.methods import METHODS, load_method
from nscl.methods.base import Batch
from nscl.methods.regularization.fisher import fisher
from nscl.methods.replay.base import Replay
from nscl.models import build_model
from nscl.results import Result
from nscl.training.config.build import build_config
from nscl.training.config.schema import RunConfig
from nscl.training.experiment import run
from nscl.training.process.device import Ranks
from nscl.training.setup import Setup

OF_TEXTS = [name for name in METHODS if "texts" in load_method(name).kinds]
WORDS = (("where", "when"), ("open", "close"), ("yes", "no"))


@pytest.fixture(scope="session")
def mails(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tasks of two labels; one word of a text tells which, others and lengths vary."""
    folder = tmp_path_factory.mktemp("mails")
    for part, texts in (("train", 16), ("test", 6)):
        lines = ["text,label,task"]
        for task, words in enumerate(WORDS):
            for word in words:
                lines += [f"{'so ' * (i % 4)}{word} it {i % 3},{word},{task}" for i in range(texts)]
        (folder / f"{part}.csv").write_text("\n".join(lines))
    return folder


def config(mails: Path, method: str, out: Path, **given: Any) -> RunConfig:
    settings: dict[str, Any] = {
        "method": method,
        "out": out,
        "threads": 1,
        "data": {"tokenizer": "words:64", "length": 8},
        "model": {"name": "tiny-transformer", "width": 16},
        "optim": {"lr": 1e-2, "epochs": 3, "batch_size": 8},
        **given,
    }
    return build_config(f"text:{mails}", settings)


def made(mails: Path, method: str, tmp_path: Path, **given: Any) -> Setup:
    return Setup.build(config(mails, method, tmp_path, **given), Ranks())


class Killed(BaseException):
    pass


class KillAfter:
    """A display that counts epochs, and ends the process's work after some."""

    def __init__(self, epochs: int) -> None:
        self.left = epochs

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None

    def epoch(self, *args: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


@pytest.mark.parametrize("method", OF_TEXTS)
def test_it_learns_and_resumes_bit_for_bit(method: str, mails: Path, tmp_path: Path) -> None:
    whole = run(config(mails, method, tmp_path / "whole"))
    learned = [whole.accuracy.rows[task][task] for task in range(3)]
    assert learned[0] > 80, "one word tells the answer"
    broken = config(mails, method, tmp_path / "broken")
    with pytest.raises(Killed):
        run(broken, display=KillAfter(5))  # type: ignore[arg-type]
    resumed: Result = run(broken)
    assert resumed.accuracy == whole.accuracy


@pytest.mark.parametrize("method", ["lwf", "adam-nscl", "nscl"])
def test_one_growing_head_over_texts(method: str, mails: Path, tmp_path: Path) -> None:
    given = {"data": {"tokenizer": "words:64", "length": 8, "scenario": "class"}}
    whole = run(config(mails, method, tmp_path / "whole", **given))
    assert whole.accuracy.rows[0][0] > 80
    assert all(row[-1] > 0 for row in whole.accuracy.rows)
    broken = config(mails, method, tmp_path / "broken", **given)
    with pytest.raises(Killed):
        run(broken, display=KillAfter(5))  # type: ignore[arg-type]
    assert run(broken).accuracy == whole.accuracy


def test_the_methods_are_those_without_pictures() -> None:
    assert set(METHODS) - set(OF_TEXTS) == {"muc-mas", "gd-wild", "instaparam"}


@pytest.mark.parametrize("method", ["gem", "a-gem", "mega"])
def test_replay_keeps_tokens_and_masks(method: str, mails: Path, tmp_path: Path) -> None:
    setup = made(mails, method, tmp_path, options={"per_class": 4})
    replay = setup.method
    assert isinstance(replay, Replay)
    replay.end_task(0)
    saved = tmp_path / "state.pt"
    torch.save(replay.task_state(), saved)
    replay.start_task(1)
    phase = replay.phases(1)[0]
    replay.optimizer(1, phase)
    loss, gradient = replay.reference_gradient(100)
    kept = replay.memory.task(0)
    assert len(kept) == 8
    assert replay.notes()["texts kept per class"] == 4
    # The slow truth: one text after the other, without its padding.
    total = torch.zeros_like(gradient)
    for row in range(len(kept)):
        total += lone_gradient(replay, kept.inputs, int(kept.labels[row]), row) / len(kept)
    torch.testing.assert_close(gradient, total, rtol=1e-4, atol=1e-6)
    assert loss > 0
    again = made(mails, method, tmp_path, options={"per_class": 4}).method
    again.load_task_state(torch.load(saved, weights_only=True))
    assert isinstance(again, Replay)
    assert again.memory.bytes == replay.memory.bytes
    replay.close()


def lone_gradient(replay: Replay, inputs: Inputs, label: int, row: int) -> Tensor:
    text = rows(inputs, slice(row, row + 1))
    assert isinstance(text, dict)
    real = int(text["attention_mask"].sum())
    text = {name: tensor[:, :real] for name, tensor in text.items()}
    assert replay._heads is not None
    features = replay.model.backbone(text)
    loss = replay._heads.loss(features, torch.tensor([label]), torch.tensor([0]))
    found = torch.autograd.grad(loss, replay._learned, allow_unused=True)
    pairs = zip(replay._learned, found, strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1) for p, g in pairs])


def test_kept_texts_are_not_augmented(mails: Path, tmp_path: Path) -> None:
    with pytest.raises(NsclError, match=r"augment=true is for pictures; text:.* has texts: leave"):
        made(mails, "gem", tmp_path, options={"augment": True})


def test_importances_are_those_of_single_texts(mails: Path, tmp_path: Path) -> None:
    """The vectorised Fisher information of a transformer, against a loop over texts."""
    torch.manual_seed(0)
    shape = made(mails, "finetune", tmp_path).stream
    model = build_model(
        "tiny-transformer",
        text_shape=shape.input_shape,
        classes_per_task=shape.classes_per_task,
        width=8,
        options={"heads": 2},
    ).double()
    inputs, labels = rows(shape[0].train.inputs, slice(0, 32, 5)), shape[0].train.labels[:32:5]
    parameters = dict(model.backbone_parameters())
    found = fisher(model, [(inputs, labels)], task=0, parameters=parameters, estimator="empirical")
    slow = {name: torch.zeros_like(p) for name, p in parameters.items()}
    for row in range(count(inputs)):
        logits = functional_call(model, parameters, (rows(inputs, slice(row, row + 1)), 0))
        loss = nn.functional.cross_entropy(logits, labels[row : row + 1])
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        for name, gradient in zip(parameters, gradients, strict=True):
            slow[name] += gradient.square() / count(inputs)
    for name in parameters:
        torch.testing.assert_close(found[name], slow[name], rtol=1e-9, atol=1e-15)


def test_a_batch_of_texts_has_no_images() -> None:
    batch = Batch({"input_ids": torch.zeros(1, 1)}, torch.zeros(1), 0)
    with pytest.raises(NsclError, match="this batch has no images: its inputs are texts"):
        _ = batch.images
    images = torch.zeros(1, 1, 2, 2)
    assert Batch(images, torch.zeros(1), 0).images is images
