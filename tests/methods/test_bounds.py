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
from nscl.training.config import ConfigError
from nscl.training.device import Ranks
from nscl.training.setup import Setup
from tests.methods.labs import stream
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


def test_joint_training_of_unequal_heads_is_training_each_by_itself(tmp_path: Path) -> None:
    """Against one optimizer over every head's own tensors, all heads in every batch."""
    config = small("joint", tmp_path, data={"first": 3})
    ours, truth = (Setup.build(config, Ranks(), stream=stream([2, 4, 3])) for _ in range(2))
    model = truth.model.double()
    ours.model.double()
    split = ours.method.training_split(2)
    ours_optimizer = ours.method.optimizer(2, PHASE)
    optimizer = torch.optim.Adam(model.parameters(), config.optim.lr)
    before = frozen(model.state_dict())
    for step in range(3):
        rows = torch.arange(step, len(split), 5)
        images, tasks = split.images[rows].double(), rows // 40
        labels = split.labels[rows]
        ours_optimizer.zero_grad()
        ours.method.loss(Batch(images, labels, 2), PHASE).loss.backward()
        ours_optimizer.step()
        optimizer.zero_grad()
        own = labels - torch.tensor([0, 2, 6])[tasks]
        losses = [
            F.cross_entropy(model(image[None], int(task)), label[None])
            for image, label, task in zip(images, own, tasks, strict=True)
        ]
        torch.stack(losses).mean().backward()
        optimizer.step()
    assert moved(before, model.state_dict()) == set(before)
    for name, value in ours.model.state_dict().items():
        assert torch.allclose(value, model.state_dict()[name], rtol=1e-9), name


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


@pytest.mark.parametrize(
    ("method", "options", "rate"),
    [
        ("independent", {}, 1e-2),
        ("joint", {}, 1e-2),
        ("joint", {"start": "continue"}, 1e-3),
        ("finetune", {}, 1e-3),
    ],
)
def test_what_starts_anew_learns_at_the_first_tasks_rate(
    method: str, options: dict[str, object], rate: float, tmp_path: Path
) -> None:
    config = small(method, tmp_path, options=options, optim={"later_lr": 1e-3})
    setup = Setup.build(config, Ranks())
    assert setup.method.parameter_groups(0)[0]["lr"] == 1e-2
    assert setup.method.parameter_groups(1)[0]["lr"] == rate


@pytest.mark.parametrize("method", ["independent", "joint"])
def test_statistics_of_random_weights_are_not_held(method: str, tmp_path: Path) -> None:
    """Each task starts anew, so those of the first belong to none of the others."""
    said = {"model": {"name": "convnet"}, "bn_stats": "frozen"}
    with pytest.raises(ConfigError, match=f"frozen does not go with '{method}'.*per_task"):
        Setup.build(small(method, tmp_path, **said), Ranks())
    Setup.build(small("finetune", tmp_path, **said), Ranks()).close()
