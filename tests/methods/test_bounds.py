"""The four references: fine-tuning, joint training, a frozen backbone, a network per task."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import nscl
from nscl.methods import METHODS
from nscl.methods.base import Batch, Phase
from nscl.results import read_metrics
from tests.methods.setups import batch_of, frozen, made, moved, train
from tests.runs import small

PHASE = Phase()
REFERENCES = ("finetune", "joint", "independent", "frozen")


def test_fine_tuning_is_a_plain_loop(tmp_path: Path) -> None:
    ours, truth = (made("finetune", tmp_path) for _ in range(2))
    train(ours, 0, PHASE, steps=5)
    model = truth.model.train()
    optimizer = torch.optim.Adam(model.parameters(), truth.loaders.config.optim.lr)
    for step in range(5):
        batch = batch_of(truth, 0, draw=step)
        optimizer.zero_grad()
        F.cross_entropy(model(batch.images, 0), batch.labels).backward()
        optimizer.step()
    assert not moved(model.state_dict(), ours.model.state_dict())


def test_joint_training_sends_every_image_through_its_own_head(tmp_path: Path) -> None:
    setup = made("joint", tmp_path)
    setup.model.double()
    split = setup.method.training_split(2)
    assert len(split) == sum(len(task.train) for task in setup.stream)
    rows = torch.arange(0, len(split), 17)
    images = split.images[rows].double()
    outcome = setup.method.loss(Batch(images, split.labels[rows], 2), PHASE)
    widths = setup.stream.classes_per_task
    losses, hits = [], 0
    for image, label in zip(images, split.labels[rows].tolist(), strict=True):
        task, own = 0, label
        while own >= widths[task]:
            own, task = own - widths[task], task + 1
        logits = setup.model(image[None], task)
        losses.append(F.cross_entropy(logits, torch.tensor([own])))
        hits += int(logits.argmax()) == own
    assert outcome.loss.item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-12)
    assert int((outcome.logits.argmax(1) == outcome.labels).sum()) == hits


def test_joint_training_owns_up_to_the_data_it_keeps(tmp_path: Path) -> None:
    setup = made("joint", tmp_path)
    kept = sum(task.train.images.numel() for task in list(setup.stream)[:-1])
    assert setup.method.state_bytes() == kept > 0


def test_a_frozen_backbone_stands_still_and_heads_learn(tmp_path: Path) -> None:
    model = {"name": "convnet", "width": 4}  # has running statistics, which stand still too
    setup = made("frozen", tmp_path, model=model)
    train(setup, 0, PHASE)
    before = frozen(setup.model.state_dict())
    train(setup, 1, PHASE)
    changed = moved(before, setup.model.state_dict())
    assert changed == {name for name in before if name.startswith("heads.1.")}


def test_independent_networks_forget_nothing(tmp_path: Path) -> None:
    result = nscl.run(small("independent", tmp_path))
    rows = result.accuracy.rows
    assert all(rows[-1][task] == rows[task][task] for task in range(result.accuracy.tasks))
    assert result.bwt == 0


SHORT = {"data": {"first": 2}, "optim": {"epochs": 1}}


def later_epochs(out: Path, method: str) -> list[dict[str, Any]]:
    result = nscl.run(small(method, out, **SHORT))
    records = read_metrics(out / result.directory / "metrics.jsonl")
    return [record for record in records if record["kind"] == "epoch" and record["task"] > 0]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return [epoch["loss"] for epoch in later_epochs(tmp_path_factory.mktemp("plain"), "finetune")]


@pytest.mark.parametrize("method", [name for name in METHODS if name not in REFERENCES])
def test_every_other_method_shows_its_mechanism(
    method: str, plain: list[float], tmp_path: Path
) -> None:
    """A method that never changes anything is a bug: its own figures in the log are not all 0."""
    epochs = later_epochs(tmp_path, method)
    own = [value for epoch in epochs for name, value in epoch.items() if name.startswith("method/")]
    assert any(value != 0 for value in own)
    assert [epoch["loss"] for epoch in epochs] != plain
