"""Class-incremental streams: one head over all classes seen, tested without the task."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nscl.data.images.augment import normalise
from nscl.errors import NsclError
from nscl.methods import METHODS, load_method
from nscl.methods.base import Phase
from nscl.methods.distillation.lwf import LwF
from nscl.methods.projection.nscl import NSCL
from nscl.methods.regularization.penalty import PenaltyMethod
from nscl.methods.replay.a_gem import AGEM
from nscl.models.heads import GrowingHead
from nscl.results import RunDirectory
from nscl.training.experiment import run
from nscl.training.process.device import Ranks
from nscl.training.setup import Setup
from tests.methods.labs import slow_gradient, trained
from tests.methods.setups import batch_of, frozen, made, moved, train
from tests.runs import AtStep, small

CLASS: dict[str, Any] = {"scenario": "class"}
CAN = [name for name, info in METHODS.items() if "class" in info.scenarios]
ALL_ROWS = {f"heads.{task}.{part}" for task in (0, 1) for part in ("weight", "bias")}


def grown(method: str, tmp_path: Path, **given: Any) -> tuple[Setup, Any]:
    setup = made(method, tmp_path, data=CLASS, **given)
    assert isinstance(setup.model, GrowingHead)
    return setup, setup.method


def old_images(setup: Setup) -> Tensor:
    return batch_of(setup, 0, size=64, draw=99).images


def test_the_list_says_what_each_class_can_do() -> None:
    for name, info in METHODS.items():
        assert info.scenarios == load_method(name).scenarios, name


@pytest.mark.parametrize("method", CAN)
def test_a_method_learns_and_resumes_bit_for_bit(method: str, tmp_path: Path) -> None:
    whole = run(small(method, tmp_path / "whole", data=CLASS))
    assert whole.accuracy.rows[0][0] > 80
    assert whole.accuracy.rows[2][2] > 40

    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    for stop in (whole.steps // 2, whole.steps // 4):  # in steps of the process at hand
        with pytest.raises(Killed):
            run(small(method, tmp_path / "broken", data=CLASS), display=AtStep(stop, kill))
    resumed = run(small(method, tmp_path / "broken", data=CLASS))
    assert resumed.accuracy == whole.accuracy


@pytest.mark.parametrize("method", sorted(set(METHODS) - set(CAN)))
def test_the_others_refuse_it_in_one_line(method: str, tmp_path: Path) -> None:
    with pytest.raises(NsclError) as found:
        made(method, tmp_path, data=CLASS)
    message = str(found.value)
    assert f"method '{method}' is for task" in message
    assert "split-digits-5 is a class stream here; `nscl list scenarios`" in message
    assert "\n" not in message


def test_the_matrix_is_accuracy_among_all_classes_seen(tmp_path: Path) -> None:
    config = small("finetune", tmp_path, data=CLASS)
    result = run(config)
    setup = Setup.build(config, Ranks())
    saved = RunDirectory(tmp_path / result.directory).checkpoint_path / "epoch.pt"
    setup.model.load_state_dict(torch.load(saved, weights_only=True)["state"]["model"])
    setup.model.eval()
    for task, reached in enumerate(result.accuracy.rows[-1]):
        test = setup.stream[task].test
        images = normalise(test.images, setup.stream.mean, setup.stream.std)
        with torch.no_grad():
            logits = setup.model.backbone(images) @ torch.cat(
                [setup.model.head(each).weight for each in range(3)]
            ).T + torch.cat([setup.model.head(each).bias for each in range(3)])
        hits = logits.argmax(1) == test.labels
        assert reached == pytest.approx(100 * hits.double().mean().item())
    assert result.accuracy.rows[-1][0] < 50, "fine-tuning names new classes only"


def test_statistics_of_each_task_would_need_to_know_it(tmp_path: Path) -> None:
    with pytest.raises(NsclError, match="tested without knowing the task: choose shared or frozen"):
        grown("finetune", tmp_path, bn_stats="per_task")


def test_fine_tuning_trains_all_rows_so_far(tmp_path: Path) -> None:
    setup, _ = grown("finetune", tmp_path)
    train(setup, 0, Phase())
    before = frozen(setup.model.state_dict())
    train(setup, 1, Phase())
    changed = moved(before, setup.model.state_dict())
    assert {name for name in changed if name.startswith("heads")} == ALL_ROWS
    assert any(name.startswith("backbone") for name in changed)


def test_a_frozen_backbone_leaves_the_whole_head_learning(tmp_path: Path) -> None:
    setup, _ = grown("frozen", tmp_path)
    before = frozen(setup.model.state_dict())
    train(setup, 1, Phase())
    assert moved(before, setup.model.state_dict()) == ALL_ROWS


def test_joint_training_has_one_softmax_for_all_samples(tmp_path: Path) -> None:
    setup, method = grown("joint", tmp_path)
    split = method.training_split(1)
    assert sorted(set(split.labels.tolist())) == [0, 1, 2, 3]
    setup.loaders.task = 1
    images, labels = next(iter(setup.loaders(split, purpose=0, batch_size=16)))
    outcome = method.loss(type(batch_of(setup, 0))(images, labels, 1), Phase())
    assert outcome.logits.shape == (16, 4)
    assert outcome.loss.item() == pytest.approx(
        F.cross_entropy(setup.model(images, 1), labels).item()
    )


@pytest.mark.parametrize("name", ["lwf", "nscl"])
def test_old_answers_are_distilled_in_one_softmax(name: str, tmp_path: Path) -> None:
    strength = {"lwf": "strength", "nscl": "kd"}[name]
    setup, method = grown(name, tmp_path, options={strength: 0.7, "temperature": 3.0})
    for task in (0, 1):
        method.start_task(task)
        train(setup, task, Phase())
        method.leave_phase(task, Phase())
        method.end_task(task)
    method.start_task(2)
    before = frozen(setup.model.state_dict())
    train(setup, 2, Phase())
    batch = batch_of(setup, 2)
    found = method.loss(batch, Phase()).loss.item()
    with torch.no_grad():
        logits = setup.model(batch.images, 2)
        truth = F.cross_entropy(logits, batch.labels)
        setup.model.load_state_dict(before)
        target = (setup.model.eval()(batch.images, 1) / 3).softmax(1)
        answer = (logits[:, :4] / 3).log_softmax(1)
        truth += 0.7 * F.kl_div(answer, target, reduction="batchmean")
    assert found == pytest.approx(truth.item(), rel=1e-5)


@pytest.mark.parametrize("name", ["lwf", "nscl"])
def test_new_rows_warm_up_alone(name: str, tmp_path: Path) -> None:
    setup, method = grown(name, tmp_path)
    train(setup, 0, Phase())
    method.end_task(0)
    method.start_task(1)
    warmup, whole = method.phases(1)
    before = frozen(setup.model.state_dict())
    train(setup, 1, warmup)
    assert moved(before, setup.model.state_dict()) == {"heads.1.weight", "heads.1.bias"}
    train(setup, 1, whole)
    changed = moved(before, setup.model.state_dict())
    assert {name for name in changed if name.startswith("heads")} == ALL_ROWS


def test_old_rows_of_lwf_may_be_frozen(tmp_path: Path) -> None:
    setup, method = grown("lwf", tmp_path, options={"freeze_old_heads": True})
    assert isinstance(method, LwF)
    method.start_task(1)
    before = frozen(setup.model.state_dict())
    train(setup, 1, Phase())
    changed = moved(before, setup.model.state_dict())
    assert {n for n in changed if n.startswith("heads")} == {"heads.1.weight", "heads.1.bias"}


def test_old_logits_stay_where_a_hard_rule_holds_old_rows(tmp_path: Path) -> None:
    """No update lies in directions that old images use: what they get does not change."""
    shift = {}
    for name, options in (("finetune", {}), ("adam-nscl", {"rule": "tolerance", "rtol": 1e-8})):
        setup, method = grown(name, tmp_path / name, options=options)
        train(setup, 0, Phase())
        method.end_task(0)
        images = old_images(setup)
        before = setup.model.eval()(images, 0).detach()
        train(setup, 1, Phase(), steps=5)
        now = setup.model.eval()(images, 1)[:, :2].detach()
        shift[name] = float((now - before).abs().max())
    assert shift["finetune"] > 0.5
    assert shift["adam-nscl"] < 1e-3


def test_a_memory_remembers_old_rows_and_leaves_new_ones_free(tmp_path: Path) -> None:
    setup, method = grown("nscl", tmp_path)
    assert isinstance(method, NSCL)
    for task in (0, 1):
        train(setup, task, Phase())
        method.end_task(task)
    kept = {layer.name for layer in method.memory.report().layers if layer.name.startswith("heads")}
    assert {"heads.0", "heads.1"} <= kept
    assert not any("heads.2" in name for name in method.memory.spectra())
    before = frozen(setup.model.state_dict())
    train(setup, 2, Phase())
    assert {"heads.0.weight", "heads.2.weight"} <= moved(before, setup.model.state_dict())


@pytest.mark.parametrize("name", ["ewc", "mas", "si"])
def test_a_penalty_holds_rows_that_have_been_used(name: str, tmp_path: Path) -> None:
    setup, method = grown(name, tmp_path)
    assert isinstance(method, PenaltyMethod)
    method.start_task(0)
    train(setup, 0, Phase())
    method.end_task(0)
    importance = method.penalty.importance
    assert float(importance["heads.0.weight"].sum()) > 0
    assert float(importance["heads.1.weight"].sum()) == 0
    method.start_task(1)
    train(setup, 1, Phase())
    method.end_task(1)
    importance = method.penalty.importance
    assert float(importance["heads.1.weight"].sum()) > 0
    assert math.isfinite(method.metrics()["penalty"])


def test_kept_samples_are_asked_among_all_classes_seen() -> None:
    """The slow truth in float64: one sample after the other, through the whole head."""
    steps = trained(AGEM, 2, (2, 3, 2), scenario="class")
    method = steps.method
    assert isinstance(method, AGEM)
    samples = []
    for task in (0, 1):
        kept = method.memory.task(task)
        images = normalise(kept.images, (0.5,), (0.25,)).double()
        samples += [(i, y, 2) for i, y in zip(images, kept.labels, strict=True)]
    assert {int(label) for _, label, _ in samples} == {0, 1, 2, 3, 4}
    _, gradient = method.reference_gradient(1000)
    truth = slow_gradient(method.model, samples)
    named = dict(method.model.named_parameters())
    learned = {id(p) for p in method._learned}
    assert learned == {id(p) for p in named.values()}
    pieces, start = {}, 0
    for parameter in named.values():
        pieces[id(parameter)] = truth[start : start + parameter.numel()]
        start += parameter.numel()
    torch.testing.assert_close(gradient, torch.cat([pieces[id(p)] for p in method._learned]))


def test_old_rows_of_a_replay_method_are_never_old(tmp_path: Path) -> None:
    with pytest.raises(NsclError, match="a class stream has one head, which is never old"):
        grown("a-gem", tmp_path, options={"old_heads": False})
