"""A controller that chooses branches per image, trained by self-critical REINFORCE.

With ``p`` the controller's probabilities, ``d = 1[p ≥ μ]`` its decision and ``a ~ Bernoulli(p')`` a
trial, the loss is the mean over images of ``−log Bern(a; p') · (r(a) − r(d)) − β H(p')``: what its
own decision earns is the baseline (docs/methods.md, "InstAParam"). Everything here except the
network is a pure function of tensors.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nscl.methods.instaparam.super_kernels import NORM_GROUPS
from nscl.methods.rank_rng import uniform_like

SMALL = 32  # pixels of images that three stages see enough of
EDGE = 1e-6  # the logarithm of a probability at 0 or 1 is infinite


class ControllerBlock(nn.Module):
    """Two 3 × 3 convolutions with GroupNorm around a shortcut."""

    def __init__(self, inside: int, outside: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(NORM_GROUPS, outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(NORM_GROUPS, outside)
        self.shortcut: nn.Conv2d | None = None
        if stride != 1 or inside != outside:
            self.shortcut = nn.Conv2d(inside, outside, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[N, in, H, W]`` to ``[N, out, H / stride, W / stride]``."""
        short = x if self.shortcut is None else self.shortcut(x)
        inner = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(inner)) + short)


def stages_for(size: int, width: int) -> tuple[int, ...]:
    """Widths of the stages: three for images of up to 32 pixels, a fourth for larger ones.

    >>> stages_for(32, 16), stages_for(64, 16)
    ((16, 32, 64), (16, 32, 64, 128))
    """
    return tuple(width << stage for stage in range(3 if size <= SMALL else 4))


class Controller(nn.Module):
    """Images to the probability of every branch of every block, ``[N, blocks, branches]``.

    Images larger than ``side`` are halved, by averages, until they are not.

    >>> Controller(3, (8, 4))(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 8, 4])
    """

    def __init__(
        self,
        in_channels: int,
        choices: tuple[int, int],
        *,
        side: int = 32,
        stages: Sequence[int] = (16, 32, 64),
    ) -> None:
        super().__init__()
        self.choices, self.side = choices, side
        self.conv = nn.Conv2d(in_channels, stages[0], 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(NORM_GROUPS, stages[0])
        widths = [stages[0], *stages]
        self.blocks = nn.Sequential(
            *(
                ControllerBlock(inside, outside, stride=2 if number else 1)
                for number, (inside, outside) in enumerate(pairwise(widths))
            )
        )
        self.choose = nn.Linear(widths[-1], choices[0] * choices[1])

    def forward(self, x: Tensor) -> Tensor:
        """The probability of every branch to be active."""
        while max(x.shape[-2:]) > self.side:
            x = F.avg_pool2d(x, 2, ceil_mode=True)
        x = self.blocks(F.relu(self.norm(self.conv(x))))
        logits: Tensor = self.choose(x.mean((2, 3)))
        exact = torch.promote_types(logits.dtype, torch.float32)  # autocast gives half precision
        p: Tensor = logits.to(exact).sigmoid()
        return p.view(-1, *self.choices)


def bounded(p: Tensor, *, alpha: float, reuse: Tensor | float = 0.0) -> Tensor:
    """``p' = α p + (1 − α)(1 − p) − reuse``, kept away from 0 and 1: both choices are still tried.

    >>> bounded(torch.tensor([0.0, 0.5, 1.0]), alpha=0.8)
    tensor([0.2000, 0.5000, 0.8000])
    """
    mixed = alpha * p + (1 - alpha) * (1 - p) - reuse
    return mixed.clamp(EDGE, 1 - EDGE)


def drawn(p: Tensor) -> Tensor:
    """A trial ``a ~ Bernoulli(p)`` for every image of a batch."""
    return uniform_like(p) < p.detach()


def reward(
    policy: Tensor, right: Tensor, *, gain: float, miss: float, exponent: float = 1.0
) -> Tensor:
    """Per image: ``gain · spared`` if the answer is right, else ``miss``."""
    paid = gain * spared((~policy).flatten(1).sum(1), exponent)
    return torch.where(right, paid, torch.full_like(paid, miss))


def spared(inactive: Tensor, exponent: float) -> Tensor:
    """What a number of inactive branches is worth: ``max(0, log inactive)^exponent``.

    >>> spared(torch.tensor([0, 1, 16]), 1.0)
    tensor([0.0000, 0.0000, 2.7726])
    """
    return inactive.float().log().clamp(min=0) ** exponent


def entropy(p: Tensor) -> Tensor:
    """Per image, the sum of the branches' binary entropies (the release drops the 1 − p half)."""
    return -(p * p.log() + (1 - p) * (1 - p).log()).flatten(1).sum(1)


def controller_loss(p: Tensor, trial: Tensor, advantage: Tensor, *, beta: float) -> Tensor:
    """REINFORCE with entropy, a mean over images; ``p`` are the probabilities drawn from."""
    surprise = -torch.where(trial, p, 1 - p).log().flatten(1).sum(1)
    return (surprise * advantage.detach() - beta * entropy(p)).mean()


def reuse_penalty(counts: Tensor, *, strength: float, slope: float, shift: float) -> Tensor:
    """What branches lose in probability for having served old tasks.

    ``strength · sigmoid(slope · (h / max h − shift))`` with ``h = √counts``; 0 before any count.
    """
    used = counts.float().sqrt()
    if not used.any():
        return torch.zeros_like(used)
    return strength * torch.sigmoid(slope * (used / used.max() - shift))
