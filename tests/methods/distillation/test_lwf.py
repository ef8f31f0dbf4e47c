"""LwF: the loss, what learns when, and that it forgets less than fine-tuning."""

import math
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nscl.methods.base import Phase
from nscl.methods.distillation.lwf import LwF
from nscl.training.experiment import run
from nscl.training.process.device import Ranks
from nscl.training.setup import Setup
from tests.methods.labs import stream
from tests.methods.setups import batch_of, frozen, made, moved, train
from tests.runs import small

CONVNET = {"name": "convnet", "width": 4}


def lwf(tmp_path: Path, **given: object) -> tuple[object, LwF]:
    setup = made("lwf", tmp_path, **given)
    assert isinstance(setup.method, LwF)
    return setup, setup.method


@pytest.mark.parametrize("over_heads", ["sum", "mean"])
@pytest.mark.parametrize("freeze", [False, True])
def test_the_loss_is_the_one_written_out(freeze: bool, over_heads: str, tmp_path: Path) -> None:
    options = {"strength": 0.7, "freeze_old_heads": freeze, "over_heads": over_heads}
    setup, method = lwf(tmp_path, options={**options, "temperature": 3.0})
    setup.model.double()
    method.start_task(2)
    optimizer = method.optimizer(2, Phase())
    with torch.no_grad():
        for parameter in setup.model.backbone.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    batch = batch_of(setup, 2)
    found = method.loss(batch, Phase()).loss
    with torch.no_grad():
        logits = setup.model(batch.images, 2).tolist()
        truth = -sum(
            row[label] - math.log(sum(map(math.exp, row)))
            for row, label in zip(logits, batch.labels.tolist(), strict=True)
        )
        for head in range(2):
            old = (method.teacher(batch.images, head) / 3).softmax(1)
            new = (setup.model(batch.images, head) / 3).softmax(1)
            share = 0.7 if over_heads == "sum" else 0.7 / 2
            truth += share * float((old * (old / new).log()).sum())
    assert found.item() == pytest.approx(truth / len(logits), rel=1e-10)
    assert method.metrics()["kd"] > 1e-4
    before = frozen(setup.model.state_dict())
    found.backward()
    optimizer.step()
    changed = moved(before, setup.model.state_dict())
    moving = [f"heads.{head}.weight" in changed for head in range(3)]
    assert moving == [not freeze, not freeze, True]


def test_warming_up_touches_the_new_head_only(tmp_path: Path) -> None:
    setup, method = lwf(tmp_path, model=CONVNET)
    method.start_task(1)
    before = frozen(setup.model.state_dict())
    warmup, _ = method.phases(1)
    assert (warmup.name, warmup.epochs) == ("warmup", 5)
    train(setup, 1, warmup)
    assert moved(before, setup.model.state_dict()) == {"heads.1.weight", "heads.1.bias"}
    assert setup.model.backbone.training


def test_the_teacher_stands_still_while_the_network_and_its_statistics_move(tmp_path: Path) -> None:
    setup, method = lwf(tmp_path, model=CONVNET)
    method.start_task(1)
    before = frozen(setup.model.state_dict())
    train(setup, 1, Phase())
    assert method.teacher is not None
    assert not method.teacher.training
    assert not moved(before, method.teacher.state_dict())
    changed = moved(before, setup.model.state_dict())
    assert {"backbone.norms.0.running_mean", "heads.0.weight", "heads.1.weight"} <= changed
    assert "heads.2.weight" not in changed


def test_phases_without_warm_up(tmp_path: Path) -> None:
    _, method = lwf(tmp_path, options={"warmup_epochs": 0})
    assert [phase.name for phase in method.phases(0)] == ["train"]
    assert [phase.name for phase in method.phases(1)] == ["train"]


def test_without_strength_it_is_fine_tuning(tmp_path: Path) -> None:
    off = {"strength": 0.0, "warmup_epochs": 0, "freeze_old_heads": True}
    nothing = run(small("lwf", tmp_path, options=off))
    assert nothing.accuracy == run(small("finetune", tmp_path)).accuracy


def test_frozen_heads_stay_to_the_last_bit(tmp_path: Path) -> None:
    setup, method = lwf(tmp_path, options={"freeze_old_heads": True})
    method.start_task(1)
    before = frozen(setup.model.state_dict())
    train(setup, 1, Phase())
    changed = moved(before, setup.model.state_dict())
    assert "heads.1.weight" in changed
    assert "heads.0.weight" not in changed


class Counter(TorchDispatchMode):
    """Counts operations."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_a_step_makes_as_many_operations_whatever_the_number_of_heads(tmp_path: Path) -> None:
    """Also with heads of unequal width."""
    counts = []
    setup = Setup.build(
        small("lwf", tmp_path, data={"first": 6}), Ranks(), stream=stream([2, 3, 2, 4, 2, 3])
    )
    method = setup.method
    for task in (2, 5):
        method.start_task(task)
        optimizer, batch = method.optimizer(task, Phase()), batch_of(setup, task)
        with Counter() as counter:
            method.loss(batch, Phase()).loss.backward()
            optimizer.step()
        method.leave_phase(task, Phase())
        counts.append(counter.count)
    assert counts[0] == counts[1]


def test_heads_of_their_own_after_a_phase(tmp_path: Path) -> None:
    setup, method = lwf(tmp_path)
    method.start_task(2)
    train(setup, 2, Phase())
    stack = method._heads.stacked(2)
    assert stack.weight.data_ptr() == setup.model.head(0).weight.data_ptr()
    method.leave_phase(2, Phase())
    assert stack.weight.data_ptr() != setup.model.head(0).weight.data_ptr()


def test_one_copy_of_the_network_is_kept(tmp_path: Path) -> None:
    result = run(small("lwf", tmp_path))
    assert result.state_bytes == result.model_bytes
