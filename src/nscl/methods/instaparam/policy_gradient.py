"""A trial of branches, and what the controller learns from it: by REINFORCE or straight through.

Both draw a trial from the bounded probabilities and let the network answer under it. REINFORCE, as
published, asks for one more answer, under the controller's own decision, whose reward is the
baseline (``controller``); the relaxed trial asks for the reward's slope (``straight_through``).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nscl.methods.instaparam.controller import controller_loss, drawn, entropy, reward
from nscl.methods.instaparam.options import InstAParamOptions
from nscl.methods.instaparam.straight_through import (
    relaxed,
    reward_slope,
    straight_through_loss,
    temperature,
)

Answer = Callable[[Tensor], Tensor]  # a policy to the network's logits


@dataclass(frozen=True)
class PolicyTrial:
    """What the network answered, the controller's loss, and figures to report."""

    logits: Tensor
    loss: Tensor  # of the controller
    figures: dict[str, Tensor | float]


@dataclass(frozen=True)
class BranchProbabilities:
    """For some images: what the controller prefers, and the probabilities trials are drawn from."""

    wished: Tensor
    p: Tensor
    labels: Tensor
    progress: float  # of the phase, from 0 to 1


def try_policy(
    probabilities: BranchProbabilities, answer: Answer, options: InstAParamOptions
) -> PolicyTrial:
    """Draw a trial, let the network answer and learn from it in the way that is asked for."""
    attempt = _reinforce if options.estimator == "reinforce" else _relax
    return attempt(probabilities, answer, options)


def _reinforce(
    probabilities: BranchProbabilities, answer: Answer, options: InstAParamOptions
) -> PolicyTrial:
    trial, decision = drawn(probabilities.p), probabilities.wished >= options.mu
    logits = answer(trial)
    with torch.no_grad():
        decided = answer(decision)
    earned = _reward(trial, logits, probabilities.labels, options)
    advantage = earned - _reward(decision, decided, probabilities.labels, options)
    loss = controller_loss(probabilities.p, trial, advantage, beta=options.beta)
    figures = _figures(probabilities, earned, options)
    return PolicyTrial(logits, loss, {**figures, "advantage": advantage.abs().mean()})


def _relax(
    probabilities: BranchProbabilities, answer: Answer, options: InstAParamOptions
) -> PolicyTrial:
    heat = temperature(probabilities.progress)
    soft = relaxed(probabilities.p, temperature=heat)
    trial = soft.detach() > 0.5
    # A leaf: the network's loss must not teach the controller, nor the reward the network.
    switches = trial.to(soft.dtype).requires_grad_()
    logits = answer(switches)
    chance = logits.softmax(1).gather(1, probabilities.labels[:, None])[:, 0]
    (by_branch,) = torch.autograd.grad(chance.sum(), switches, retain_graph=True)
    slope = reward_slope(
        trial,
        chance.detach(),
        by_branch,
        gain=options.gain,
        miss=options.miss,
        exponent=options.exponent,
    )
    loss = straight_through_loss(probabilities.p, soft, slope, beta=options.beta)
    earned = _reward(trial, logits, probabilities.labels, options)
    return PolicyTrial(
        logits, loss, {**_figures(probabilities, earned, options), "temperature": heat}
    )


def _reward(policy: Tensor, logits: Tensor, labels: Tensor, options: InstAParamOptions) -> Tensor:
    right = logits.detach().argmax(1) == labels
    return reward(policy, right, gain=options.gain, miss=options.miss, exponent=options.exponent)


def _figures(
    probabilities: BranchProbabilities, earned: Tensor, options: InstAParamOptions
) -> dict[str, Tensor | float]:
    return {
        "active": (probabilities.wished >= options.mu).float().mean(),
        "reward": earned.mean(),
        "entropy": entropy(probabilities.p.detach()).mean(),
    }
