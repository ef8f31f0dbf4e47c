"""InstAParam's life on the digits: regimes, snapshots, counts, penalty, resuming, forgetting."""

import copy
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from nscl.methods.base import Phase
from nscl.methods.instaparam.method import InstAParam
from nscl.training.checkpoint import Place
from nscl.training.display.display import Quiet
from nscl.training.experiment import run
from nscl.training.process.interrupt import InterruptedRunError
from nscl.training.setup import Setup
from tests.methods.digits import last_epoch
from tests.methods.labs import stream
from tests.methods.setups import batch_of, frozen, made, moved, train
from tests.runs import small


def setup(
    tmp_path: Path, data: dict[str, Any] | None = None, **options: Any
) -> tuple[Setup, InstAParam]:
    model = {"name": "convnet", "width": 4}
    found = made("instaparam", tmp_path, options=options, model=model, data=data or {})
    assert isinstance(found.method, InstAParam)
    return found, found.method


def test_the_loss_shown_is_the_networks_and_both_learn(tmp_path: Path) -> None:
    found, method = setup(tmp_path)
    before = frozen(method.controller.state_dict()), frozen(method.net.state_dict())
    phase = method.phases(0)[0]
    method.optimizer(0, phase)
    torch.manual_seed(1)
    outcome = method.loss(batch_of(found, 0), phase)
    plain = F.cross_entropy(outcome.logits, outcome.labels)
    assert torch.equal(outcome.loss, plain)
    train(found, 0, phase)
    assert moved(before[0], method.controller.state_dict())
    assert moved(before[1], method.net.state_dict())
    figures = method.metrics()
    assert figures["reward"] > 0
    assert figures["entropy"] > 0
    assert 0 <= figures["active"] <= 1


def test_a_task_is_tested_with_its_own_controller(tmp_path: Path) -> None:
    found, method = setup(tmp_path)
    train(found, 0, method.phases(0)[0])
    method.end_task(0)
    images = batch_of(found, 0).images
    with method.evaluating(0), torch.no_grad():
        first = method.controller(images)
    train(found, 1, method.phases(1)[0])
    present = method.controller(images)
    assert not torch.allclose(present, first)
    with method.evaluating(0), torch.no_grad():
        assert torch.equal(method.controller(images), first)
    assert torch.equal(method.controller(images), present)


def test_counts_are_decisions_on_the_tasks_images(tmp_path: Path) -> None:
    found, method = setup(tmp_path)
    method.end_task(0)
    split = found.stream[0].train
    images = (split.images.float() / 255 - found.stream.mean[0]) / found.stream.std[0]
    with torch.no_grad():
        slow = (method.controller(images) >= 0.5).sum(0)
    assert torch.equal(method.counts, slow.double())
    method.optimizer(1, method.phases(1)[0])
    assert 0 < method.metrics()["reuse"] <= 0.1


@pytest.mark.parametrize("scenario", ["task", "domain"])
def test_ewc_is_the_gradient_of_the_parabola(scenario: str, tmp_path: Path) -> None:
    found, method = setup(tmp_path, ewc=7.0, data={"scenario": scenario})
    method.end_task(0)
    held = dict(method.model.backbone_parameters())
    held |= dict(method.model.head_parameters(0)) if scenario == "domain" else {}
    centre = {n: p.detach().clone().double() for n, p in held.items()}
    with torch.no_grad():
        for parameter in held.values():
            parameter.add_(torch.randn_like(parameter) * 0.01)
            parameter.grad = None
    method.after_backward(batch_of(found, 1), method.phases(1)[0])
    length = 0.0
    for name, parameter in held.items():
        w = parameter.detach().double().requires_grad_()
        fisher = method.penalty.importance[name].double()
        (7.0 / 2 * (fisher * (w - centre[name]).square()).sum()).backward()
        assert parameter.grad is not None
        assert w.grad is not None
        assert torch.allclose(parameter.grad.double(), w.grad, atol=1e-5)
        length += float(w.grad.square().sum())
    assert method._averages.read()["pull"] == pytest.approx(math.sqrt(length), rel=1e-4)


def test_the_penalty_is_two_numbers_per_weight_in_its_precision(tmp_path: Path) -> None:
    found, method = setup(tmp_path, ewc=7.0)
    for task in range(2):
        train(found, task, method.phases(task)[0])
        method.end_task(task)
    weights = sum(p.nbytes for p in method.net.parameters())
    controllers = 2 * sum(p.nbytes for p in method.controller.parameters())
    assert method.state_bytes() == 2 * weights + controllers + method.counts.nbytes


def test_regimes_and_pre_training(tmp_path: Path) -> None:
    _, method = setup(tmp_path, regime="online", pretrain_epochs=4)
    first, online = method.phases(0)
    assert (first.name, first.epochs, first.batch_size) == ("pretrain", 4, 200)
    assert (online.epochs, online.repeats, online.batch_size) == (1, 10, 10)
    assert method.phases(1) == (online,)
    method.enter_phase(0, first)
    method.optimizer(0, first)
    kept = []
    for done in (0, method._length // 2, method._length * 3 // 4, method._length):
        method._done = done
        kept.append(float(method._random_policy(4000).float().mean()))
    assert kept == pytest.approx([1, 1, 0.75, 0.5], abs=0.02)


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        pytest.param({"regime": "online"}, 29, marks=pytest.mark.slow),
        ({"pretrain_epochs": 1}, 2 + 2 * 9),
        ({"estimator": "gumbel"}, 2 * 9),
    ],
)
def test_other_regimes_run_on_the_digits(
    options: dict[str, Any], steps: int, tmp_path: Path
) -> None:
    options = {**options, "kernels": (3, 1), "controller_width": 2}
    given = {"data": {"first": 1}, "model": {"name": "convnet", "width": 4}}
    result = run(small("instaparam", tmp_path, options=options, **given))
    assert result.steps == steps
    assert result.acc > 80


class StopAt(Quiet):
    """Asks the run to stop, as Ctrl-C would, after the first step of a phase's last epoch."""

    def __init__(self, task: int, phase: str) -> None:
        self.at = (task, phase)

    def step(self, place: Place, phase: Phase, epochs: int, tally: Any, batches: int) -> None:
        last = place.epoch + 1 == epochs
        if (place.task, phase.name) == self.at and last and tally.steps == 1 < batches:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(
    ("options", "images", "stops"),
    [
        ({"pretrain_epochs": 2}, 230, [(0, "pretrain"), (0, "train"), (1, "train")]),
        ({"regime": "online"}, 30, [(0, "train"), (1, "train")]),
        ({"estimator": "gumbel"}, 64, [(1, "train")]),
    ],
)
def test_stopped_in_any_phase_it_ends_as_if_it_had_not_been(
    options: dict[str, Any], images: int, stops: list[tuple[int, str]], tmp_path: Path
) -> None:
    pictures = stream([2, 2], images=images, size=8)
    options = {**options, "kernels": (3, 1), "controller_width": 2}
    given: dict[str, Any] = {"data": {"first": 2}, "model": {"name": "convnet", "width": 4}}
    whole, broken = (small("instaparam", tmp_path / n, options=options, **given) for n in "wb")
    for task, phase in stops:
        with pytest.raises(InterruptedRunError):
            run(broken, stream=pictures, display=StopAt(task, phase))
    resumed, truth = run(broken, stream=pictures), run(whole, stream=pictures)
    assert resumed.accuracy == truth.accuracy
    shown = [last_epoch(tmp_path / n, r) for n, r in (("w", truth), ("b", resumed))]
    for record in shown:
        record.pop("seconds")
    assert shown[0] == shown[1]
    assert shown[0]["method/pull"] > 0


@pytest.mark.parametrize("seeds", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_it_forgets_less_than_fine_tuning_the_same_network(seeds: int, tmp_path: Path) -> None:
    """Preset quick, which switches EWC on: the controller alone holds nothing."""
    given: dict[str, Any] = {"model": {"name": "convnet", "width": 8}}
    found = {
        method: [run(small(method, tmp_path, seed=seed, **given)) for seed in range(seeds)]
        for method in ("finetune", "instaparam")
    }
    bwt = {name: [r.bwt for r in results] for name, results in found.items()}
    assert sum(bwt["instaparam"]) > sum(bwt["finetune"]) + 3 * seeds
    assert min(r.acc for r in found["instaparam"]) > 80
    assert found["instaparam"][0].state_bytes > 0
    shown = last_epoch(tmp_path, found["instaparam"][0])
    for name in ("reward", "advantage", "pull", "reuse", "active"):
        assert shown[f"method/{name}"] > 0, name


def test_on_a_domain_stream_the_present_controller_serves_all(tmp_path: Path) -> None:
    found = made("instaparam", tmp_path, data={"scenario": "domain"})
    method = found.method
    assert isinstance(method, InstAParam)
    method.end_task(0)
    train(found, 1, method.phases(1)[0])
    images = batch_of(found, 0).images
    present = copy.deepcopy(method.controller)(images)
    with method.evaluating(0):
        assert torch.equal(method.controller(images), present)
