"""InstAParam against METHODS §10 and §19: probabilities, rewards, crops, policies, phases."""

import copy
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from nscl.errors import NsclError, UnsupportedError
from nscl.methods.base import Phase
from nscl.methods.controller import (
    Controller,
    bounded,
    controller_loss,
    drawn,
    entropy,
    reuse_penalty,
    reward,
)
from nscl.methods.instaparam import InstAParam
from nscl.methods.super_kernels import SuperBlock, SuperConv, SuperNet, super_net_like
from nscl.models.convnet import ConvNet
from nscl.models.mlp import MLP
from nscl.models.preact_resnet import PreActResNet18
from nscl.training.checkpoint import Place
from nscl.training.display import Quiet
from nscl.training.experiment import run
from nscl.training.interrupt import InterruptedRunError
from nscl.training.setup import Setup
from tests.methods.digits import last_epoch
from tests.methods.setups import batch_of, frozen, made, moved, train
from tests.runs import small

PUBLISHED: dict[str, float] = {"gain": 30.0, "miss": 0.0}


def test_bounded_probabilities() -> None:
    found = bounded(torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64), alpha=0.8)
    assert torch.allclose(found, torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64))
    assert float(bounded(torch.tensor(0.0), alpha=1.0, reuse=0.1).log()) > -math.inf


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.5, 1), st.floats(0, 0.99))
def test_bounded_probabilities_have_finite_logarithms(
    p: list[float], alpha: float, r: float
) -> None:
    found = bounded(torch.tensor(p, dtype=torch.float64), alpha=alpha, reuse=r)
    assert torch.isfinite(entropy(found[None])).all()
    assert (found > 0).all()
    assert (found < 1).all()


def test_reward_of_sixteen_of_thirty_two_active() -> None:
    policy = torch.zeros(3, 8, 4, dtype=torch.bool)
    policy[:, :4] = True
    policy[2] = True
    found = reward(policy, torch.tensor([True, False, True]), **PUBLISHED)
    assert found.tolist() == pytest.approx([83.1777, 0.0, 0.0], abs=1e-4)
    assert (
        reward(policy, torch.tensor([True] * 3), gain=30.0, miss=0.0, exponent=0.0).tolist()
        == [30.0] * 3
    )


def test_reuse_penalty_at_both_ends() -> None:
    counts = torch.tensor([[0.0, 400.0], [100.0, 400.0]])
    found = reuse_penalty(counts, strength=0.1, slope=10.0, shift=0.5)
    assert found.flatten().tolist() == pytest.approx([0.00067, 0.09933, 0.05, 0.09933], abs=1e-5)
    assert not reuse_penalty(torch.zeros(2, 2), strength=0.1, slope=10.0, shift=0.5).any()


def test_reinforce_is_unbiased() -> None:
    """One Bernoulli, r(1) = 1, r(0) = 0: the gradient of E[r] is p(1 − p) = 0.25 at logit 0."""
    torch.manual_seed(0)
    logit = torch.zeros(20000, 1, 1, dtype=torch.float64, requires_grad=True)
    p = logit.sigmoid()
    trial = drawn(p)
    controller_loss(p, trial, trial[:, 0, 0].double(), beta=0.0).backward()
    assert logit.grad is not None
    assert -float(logit.grad.sum()) == pytest.approx(0.25, abs=0.01)


def test_controller_loss_is_the_formula() -> None:
    torch.manual_seed(0)
    p = torch.rand(3, 2, 2, dtype=torch.float64) * 0.8 + 0.1
    trial, advantage = torch.rand(3, 2, 2) < 0.5, torch.randn(3, dtype=torch.float64)
    slow = 0.0
    for image in range(3):
        for chance, active in zip(p[image].flatten(), trial[image].flatten(), strict=True):
            q = float(chance)
            slow -= math.log(q if active else 1 - q) * float(advantage[image])
            slow -= 0.8 * (-q * math.log(q) - (1 - q) * math.log(1 - q))
    assert float(controller_loss(p, trial, advantage, beta=0.8)) == pytest.approx(slow / 3)


@pytest.mark.parametrize(("size", "stride"), [(7, 1), (5, 2), (3, 1), (1, 2)])
def test_a_crop_is_the_whole_kernel_with_its_rings_set_to_zero(size: int, stride: int) -> None:
    conv = SuperConv(4, 8, size=7, stride=stride, groups=4).double()
    x = torch.randn(2, 4, 9, 9, dtype=torch.float64)
    whole, ring = torch.zeros_like(conv.weight), (7 - size) // 2
    inside = slice(ring, 7 - ring)
    whole[:, :, inside, inside] = conv.weight[:, :, inside, inside]
    slow = F.conv2d(x, whole, stride=stride, padding=3, groups=4)
    assert torch.allclose(conv(x, size), slow, atol=1e-12)


def slow_block(block: SuperBlock, x: Tensor, policy: Tensor) -> Tensor:
    """Sample by sample, branch by branch, as METHODS §10 says it."""
    outputs = []
    for image, row in zip(x, policy, strict=True):
        short = image[None] if block.shortcut is None else block.shortcut(image[None])
        active = [i for i, on in enumerate(row) if on]
        if not active and block.shortcut is None:
            outputs.append(image[None])
            continue
        total = torch.zeros_like(short)
        for i in active or [block.kernels.index(3)]:
            size = block.kernels[i]
            inner = F.relu(block.norm1(block.conv1(image[None], size)))
            total = total + F.relu(block.norm2(block.conv2(inner, size)) + short)
        outputs.append(total)
    return torch.cat(outputs)


@pytest.mark.parametrize(("outside", "stride"), [(8, 1), (16, 2)])
def test_a_block_sums_the_active_branches_of_each_sample(outside: int, stride: int) -> None:
    torch.manual_seed(0)
    block = SuperBlock(8, outside, stride=stride, kernels=(7, 5, 3, 1), groups=4).double()
    nn.init.normal_(block.norm2.weight)
    x = torch.randn(6, 8, 6, 6, dtype=torch.float64)
    policy = torch.rand(6, 4) < 0.5
    policy[0], policy[1] = False, True
    found, slow = block(x, policy), slow_block(block, x, policy)
    assert torch.allclose(found, slow, atol=1e-12)
    weights = list(block.parameters())
    direction = torch.randn_like(found)
    for fast, true in zip(
        torch.autograd.grad((found * direction).sum(), weights),
        torch.autograd.grad((slow * direction).sum(), weights),
        strict=True,
    ):
        assert torch.allclose(fast, true, atol=1e-10)


def test_the_super_network_has_the_size_of_the_one_it_replaces() -> None:
    net = super_net_like(PreActResNet18(3, width=8), kernels=(7, 5, 3, 1), groups=4)
    assert net.choices == (8, 4)
    assert net.out_features == 64
    assert [b.conv1.stride for b in net.blocks] == [1, 1, 2, 1, 2, 1, 2, 1]  # type: ignore[union-attr]
    small_net = super_net_like(ConvNet(1, width=4), kernels=(3, 1), groups=2)
    assert small_net(torch.zeros(2, 1, 8, 8)).shape == (2, 16)
    assert sum(p.numel() for p in Controller(3, (8, 4)).parameters()) == pytest.approx(
        80e3, rel=0.1
    )


@pytest.mark.parametrize(
    ("backbone", "message"),
    [(MLP(64), "--model.name convnet or resnet18"), (ConvNet(1, width=6), "no multiple of 4")],
)
def test_networks_without_super_kernels_are_refused(backbone: nn.Module, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        super_net_like(backbone, kernels=(7, 5, 3, 1), groups=4)


@pytest.mark.parametrize("kernels", [(4, 3), (3, 3), ()])
def test_kernels_must_be_odd_and_different(kernels: tuple[int, ...], tmp_path: Path) -> None:
    with pytest.raises(NsclError, match="kernels must be different odd sizes"):
        small("instaparam", tmp_path, options={"kernels": kernels})


def setup(tmp_path: Path, **options: Any) -> tuple[Setup, InstAParam]:
    found = made("instaparam", tmp_path, options=options, model={"name": "convnet", "width": 4})
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
    assert torch.allclose(outcome.loss, plain)
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


def test_ewc_is_the_gradient_of_the_parabola(tmp_path: Path) -> None:
    found, method = setup(tmp_path, ewc=7.0)
    method.end_task(0)
    centre = {n: p.detach().clone().double() for n, p in method.net.named_parameters()}
    with torch.no_grad():
        for parameter in method.net.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.01)
            parameter.grad = None
    method.after_backward(batch_of(found, 1), method.phases(1)[0])
    for name, parameter in method.net.named_parameters():
        w = parameter.detach().double().requires_grad_()
        fisher = method.anchors[name].fisher
        (7.0 / 2 * (fisher * (w - centre[name]).square()).sum()).backward()
        assert parameter.grad is not None
        assert w.grad is not None
        assert torch.allclose(parameter.grad.double(), w.grad, atol=1e-5)
    assert method._meter.read()["pull"] > 0


def test_regimes_and_pre_training(tmp_path: Path) -> None:
    _, method = setup(tmp_path, regime="online", pretrain_epochs=3)
    first, online = method.phases(0)
    assert (first.name, first.epochs) == ("pretrain", 3)
    assert (online.epochs, online.repeats, online.batch_size) == (1, 10, 10)
    assert method.phases(1) == (online,)
    method.enter_phase(0, first)
    method.optimizer(0, first)
    kept = []
    for done in (0, method._length // 2, method._length * 3 // 4, method._length):
        method._done = done
        kept.append(float(method._random_policy(4000).float().mean()))
    assert kept == pytest.approx([1, 1, 0.75, 0.5], abs=0.02)


@pytest.mark.parametrize("options", [{"regime": "online"}, {"pretrain_epochs": 1}])
def test_other_regimes_run_on_the_digits(options: dict[str, Any], tmp_path: Path) -> None:
    options = {**options, "kernels": (3, 1), "controller_width": 2}
    said = {"data": {"first": 1}, "model": {"name": "convnet", "width": 4}}
    result = run(small("instaparam", tmp_path, options=options, **said))
    epochs = {"regime": 29 * 1, "pretrain_epochs": 9 * 3}
    assert result.steps == epochs[next(iter(options))]
    assert result.acc > 80


class StopAt(Quiet):
    """Asks the run to stop, as Ctrl-C would, at the third step of the second epoch of a phase."""

    def __init__(self, phase: str) -> None:
        self.phase = phase

    def step(self, place: Place, phase: Phase, epochs: int, tally: Any, batches: int) -> None:
        if (phase.name, place.epoch, tally.steps) == (self.phase, 1, 3):
            os.kill(os.getpid(), signal.SIGTERM)


def test_stopped_in_any_phase_it_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    options = {"pretrain_epochs": 2, "kernels": (3, 1), "controller_width": 2}
    said: dict[str, Any] = {"data": {"first": 2}, "model": {"name": "convnet", "width": 4}}
    whole, broken = (small("instaparam", tmp_path / n, options=options, **said) for n in "wb")
    for phase in ("pretrain", "train"):
        with pytest.raises(InterruptedRunError):
            run(broken, display=StopAt(phase))
    resumed, truth = run(broken), run(whole)
    assert resumed.accuracy == truth.accuracy
    shown = [last_epoch(tmp_path / n, r) for n, r in (("w", truth), ("b", resumed))]
    for record in shown:
        record.pop("seconds")
    assert shown[0] == shown[1]


@pytest.mark.parametrize("seeds", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_it_forgets_less_than_fine_tuning_the_same_network(seeds: int, tmp_path: Path) -> None:
    """Preset quick, which switches EWC on: the controller alone holds nothing (METHODS §10)."""
    said: dict[str, Any] = {"model": {"name": "convnet", "width": 8}}
    found = {
        method: [run(small(method, tmp_path, seed=seed, **said)) for seed in range(seeds)]
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


def test_bf16_and_a_net_without_policy() -> None:
    net = SuperNet(3, [(8, 1), (16, 2)], kernels=(5, 3, 1))
    x, everything = torch.randn(4, 3, 8, 8), torch.ones(4, 2, 3, dtype=torch.bool)
    assert torch.equal(net(x), net(x, everything))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.isfinite(net(x, torch.rand(4, 2, 3) < 0.5)).all()
