"""The controller's pure functions against values worked out by hand, and its size."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nscl.methods.instaparam.controller import (
    bounded,
    controller_loss,
    drawn,
    entropy,
    reuse_penalty,
    reward,
)
from nscl.methods.instaparam.method import InstAParam
from nscl.training.process.device import Ranks
from nscl.training.setup import Setup
from tests.methods.labs import stream
from tests.runs import small


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
    found = reward(policy, torch.tensor([True, False, True]), gain=30.0, miss=0.0)
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


@pytest.mark.parametrize(("size", "stages"), [(32, 3), (64, 4)])
def test_larger_images_have_a_controller_of_four_stages(
    size: int, stages: int, tmp_path: Path
) -> None:
    pictures = stream([2], images=4, size=size)
    settings: dict[str, Any] = {"model": {"name": "convnet", "width": 4}, "data": {"first": 1}}
    config = small("instaparam", tmp_path, **settings)
    method = Setup.build(config, Ranks(), stream=pictures).method
    assert isinstance(method, InstAParam)
    assert [block.conv2.out_channels for block in method.controller.blocks] == [  # type: ignore[union-attr]
        16 << stage for stage in range(stages)
    ]
    assert method.logits(torch.zeros(3, 1, size, size), 0).shape == (3, 2)
