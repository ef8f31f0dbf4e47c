"""MEGA: the current and the memory's gradient mixed by their losses (Guo et al., NeurIPS 2020).

Memory and reference batch are A-GEM's; l_t and l_r are the losses of the current and the reference
batch, g and r their gradients. Unlike A-GEM both variants act on every step (docs/methods.md,
"MEGA").

MEGA-I    g̃ = g + (l_r / l_t)·r while l_t > eps, and g̃ = r once the current loss is that small.
MEGA-II   g̃ is g, at its own length, turned towards r by the angle β that maximises
          l_t·cos β + l_r·cos(w − β), w being the angle between g and r. In closed form
          β = atan2(l_r·sin w, l_t + l_r·cos w), a value in [0, w]; the authors' code searches for
          it in [0, π/2] by gradient ascent, which ``clip_half_pi`` keeps to.

The losses are a balance, not a constraint; what it does to old tasks is meant for plain SGD, where
the step *is* g̃, and a heuristic under momentum or Adam, which do not keep its length either
(docs/methods.md, "Numerical traps"). There is no strength to tune. Task and domain streams.
"""

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from nscl.core.distributed.collectives import is_distributed, sum_over_ranks
from nscl.methods.base import Batch, Lab, Outcome, Phase
from nscl.methods.replay.a_gem import AGEMOptions
from nscl.methods.replay.base import Replay
from nscl.methods.replay.flat_gradients import angle, inner

_PARALLEL = 1e-6  # sin w below which g and r have no plane to turn in


class MEGAOptions(AGEMOptions):
    """The variant; budget and reference batch as for A-GEM."""

    used_with: ClassVar[Mapping[str, str]] = {
        "eps": "variant mega-i",
        "clip_half_pi": "variant mega-ii",
    }

    variant: Literal["mega-i", "mega-ii"] = "mega-ii"
    eps: NonNegativeFloat = 1e-10  # MEGA-I: a current loss that counts as learned
    clip_half_pi: bool = True  # MEGA-II: turn by a right angle at most, as the authors' code


class MEGA(Replay):
    """A-GEM's reference gradient, mixed in by how large the two losses are."""

    options_type = MEGAOptions

    def __init__(self, lab: Lab, options: MEGAOptions) -> None:
        super().__init__(lab, options)
        self.choices = options
        self._loss = torch.zeros(())
        self._reference = 0.0, torch.empty(0)

    def recall(self) -> None:
        """Loss and gradient of a batch of the memory."""
        self._reference = self.reference_gradient(self.choices.reference_batch)

    def loss(self, batch: Batch, phase: Phase) -> Outcome:
        """The usual loss, whose value weighs the current gradient afterwards."""
        outcome = super().loss(batch, phase)
        self._loss = outcome.loss.detach()
        return outcome

    def corrected(self, gradient: Tensor, batch: Batch) -> Tensor:
        """Mix the two gradients."""
        current = _over_ranks(self._loss, len(batch.labels))
        old, reference = self._reference
        pair = torch.stack([gradient, reference])
        products = inner(pair, pair)
        weights = self._weights(products, current, old)
        self.averages.add(
            1,
            angle=angle(products),
            turned=_turned(products, weights),
            reference_weight=weights[1],
            reference_loss=old,
        )
        return gradient if weights == (1.0, 0.0) else weights[0] * gradient + weights[1] * reference

    def _weights(self, products: Tensor, current: float, old: float) -> tuple[float, float]:
        if self.choices.variant == "mega-i":
            return mega_one(current, old, eps=self.choices.eps)
        return mega_two(products, current, old, clip_half_pi=self.choices.clip_half_pi)


def mega_one(current: float, old: float, *, eps: float = 1e-10) -> tuple[float, float]:
    """Weights of g and r by MEGA-I.

    The authors' code tests the reference loss and divides by the current one; the paper's rule
    tests the current loss, so that nothing is divided by zero.

    >>> mega_one(2.0, 1.0)
    (1.0, 0.5)
    """
    return (1.0, old / current) if current > eps else (0.0, 1.0)


def mega_two(
    products: Tensor, current: float, old: float, *, clip_half_pi: bool = True
) -> tuple[float, float]:
    """Weights of g and r by MEGA-II, from the Gram matrix of (g, r); the length of g is kept.

    Where g and r are parallel, opposite or zero there is no direction to turn in and g stays.

    >>> mega_two(torch.eye(2, dtype=torch.float64), 1.0, 0.0)
    (1.0, 0.0)
    """
    between = angle(products)
    sine = math.sin(between)
    if sine < _PARALLEL:
        return 1.0, 0.0
    turn = math.atan2(old * sine, current + old * math.cos(between))
    if clip_half_pi:
        turn = min(turn, math.pi / 2)
    lengths = math.sqrt(float(products[0, 0])) / math.sqrt(float(products[1, 1]))
    return math.sin(between - turn) / sine, lengths * math.sin(turn) / sine


def _turned(products: Tensor, weights: tuple[float, float]) -> float:
    """The angle between g and its mixture with r."""
    mixing = torch.tensor([(1.0, 0.0), weights], dtype=products.dtype)
    return angle(mixing @ products @ mixing.T)


def _over_ranks(loss: Tensor, samples: int) -> float:
    """The loss of the whole batch, of which each process has seen its part."""
    if not is_distributed():
        return float(loss)
    total, count = sum_over_ranks(torch.tensor([float(loss) * samples, float(samples)])).tolist()
    return float(total / count)
