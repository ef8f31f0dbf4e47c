"""Trials of branches: which policies the network answers, and what the controller learns of it."""

import pytest
import torch
from torch import Tensor

from nscl.methods.instaparam.controller import controller_loss, drawn, reward
from nscl.methods.instaparam.options import InstAParamOptions
from nscl.methods.instaparam.policy_gradient import BranchProbabilities, try_policy

LABELS = torch.tensor([0, 1, 1, 0, 1])


def branches() -> BranchProbabilities:
    torch.manual_seed(1)
    wished = torch.rand(5, 2, 3, dtype=torch.float64)
    return BranchProbabilities(wished, (0.2 + 0.6 * wished).requires_grad_(), LABELS, 0.5)


class Network:
    """Logits that are linear in the policy; remembers what it was asked."""

    def __init__(self) -> None:
        torch.manual_seed(2)
        self.weight = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
        self.asked: list[Tensor] = []

    def __call__(self, policy: Tensor) -> Tensor:
        self.asked.append(policy)
        return policy.to(self.weight.dtype).flatten(1) @ self.weight


def test_reinforce_is_rewarded_beyond_the_controllers_own_decision() -> None:
    network, options, given = Network(), InstAParamOptions(), branches()
    torch.manual_seed(3)
    found = try_policy(given, network, options)
    torch.manual_seed(3)
    trial, decision = drawn(given.p), given.wished >= 0.5
    assert [torch.equal(a, b) for a, b in zip(network.asked, (trial, decision), strict=True)]

    def earned(policy: Tensor) -> Tensor:
        right = Network()(policy).argmax(1) == LABELS
        return reward(policy, right, gain=30.0, miss=0.0, exponent=1.0)

    advantage = earned(trial) - earned(decision)
    truth = controller_loss(given.p, trial, advantage, beta=0.8)
    assert found.loss.item() == pytest.approx(truth.item())
    assert found.figures["advantage"] == advantage.abs().mean()
    assert found.figures["active"] == decision.float().mean()
    found.loss.backward()
    assert network.weight.grad is None  # the reward teaches the controller alone
    assert given.p.grad is not None


@pytest.mark.parametrize(("progress", "heat"), [(0.0, 1.0), (1.0, 0.5)])
def test_a_relaxed_trial_is_hard_for_the_network_and_soft_for_the_controller(
    progress: float, heat: float
) -> None:
    network, given = Network(), branches()
    given = BranchProbabilities(given.wished, given.p, LABELS, progress)
    found = try_policy(given, network, InstAParamOptions(estimator="gumbel"))
    (policy,) = network.asked
    assert set(policy.unique().tolist()) <= {0.0, 1.0}
    assert found.figures["temperature"] == pytest.approx(heat)
    found.loss.backward()
    assert given.p.grad is not None
    assert given.p.grad.abs().sum() > 0
    assert network.weight.grad is None
    found.logits.sum().backward()
    learned = given.p.grad.clone()
    assert network.weight.grad is not None
    assert torch.equal(given.p.grad, learned)  # the network's loss does not teach the controller
