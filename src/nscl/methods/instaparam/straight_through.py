"""Gumbel-sigmoid trials: the controller learns by a gradient through them, not by their reward.

The other estimator (docs/methods.md, "InstAParam"): lower variance than REINFORCE, biased. A trial
is ``a = 1[s > ½]`` with ``s = sigmoid((logit p' + logistic noise) / τ)``, which is
``Bernoulli(p')`` for any τ; backwards it counts as ``s`` (straight through). What it climbs is the
reward with the right answer's probability q in place of "right or wrong", which has no slope::

    q · gain · spared + (1 − q) · miss

By a branch this changes through q, whose slope the network gives, and through ``spared``, whose
change is known for every branch: active against inactive, the others as they are.
"""

import torch
from torch import Tensor

from nscl.methods.instaparam.controller import EDGE, entropy, spared
from nscl.methods.rank_rng import uniform_like

HOT, COLD = 1.0, 0.5  # temperatures at the beginning and at the end of a phase


def temperature(progress: float) -> float:
    """Falls linearly while ``progress`` goes from 0 to 1.

    >>> temperature(0.0), temperature(0.5), temperature(1.0)
    (1.0, 0.75, 0.5)
    """
    return HOT + (COLD - HOT) * progress


def relaxed(p: Tensor, *, temperature: float) -> Tensor:
    """Soft trials in (0, 1), above ½ where ``drawn(p)`` is true with the same random numbers."""
    draws = uniform_like(p).to(p.dtype).clamp(EDGE, 1 - EDGE)
    return torch.sigmoid((torch.logit(p) - torch.logit(draws)) / temperature)


def reward_slope(
    trial: Tensor,
    chance: Tensor,
    chance_slope: Tensor,
    *,
    gain: float,
    miss: float,
    exponent: float,
) -> Tensor:
    """By how much each branch of a trial changes the expected reward, ``[N, blocks, branches]``.

    ``chance`` ``[N]`` is the right answer's probability, ``chance_slope`` its slope by branches.
    """
    idle = ~trial
    inactive = idle.flatten(1).sum(1)[:, None, None]
    others = inactive - idle.long()
    saved = spared(others, exponent) - spared(others + 1, exponent)
    worth = gain * spared(inactive, exponent) - miss
    return chance_slope * worth + chance[:, None, None] * gain * saved


def straight_through_loss(p: Tensor, soft: Tensor, slope: Tensor, *, beta: float) -> Tensor:
    """Descends to more reward and entropy: a mean over images whose gradient is what counts."""
    climbed = (slope.detach() * soft).flatten(1).sum(1)
    return (-climbed - beta * entropy(p)).mean()
