"""Joint training: every image through its own head, all data kept."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from nscl.methods.base import Batch, Phase
from nscl.training.process.device import Ranks
from nscl.training.setup import Setup
from tests.methods.labs import stream
from tests.methods.setups import frozen, made, moved
from tests.runs import small

PHASE = Phase()


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
