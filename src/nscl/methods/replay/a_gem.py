"""A-GEM: no step may raise the mean loss on a batch of the memory (Chaudhry et al., ICLR 2019).

With r the gradient on a batch drawn from all old tasks: if ⟨g, r⟩ ≥ 0 the step is left alone, else

    g̃ = g − (⟨g, r⟩ / ⟨r, r⟩)·r,

which is orthogonal to r. One pass over one batch, however many tasks. The guarantee is about the
*mean* memory loss, so that a single old task may still be hurt; it is of first order and for plain
SGD only: under momentum or Adam A-GEM is a heuristic (docs/methods.md, "A-GEM"). There is no
strength to tune. Task and domain streams.
"""

import math

import torch
from pydantic import PositiveInt
from torch import Tensor

from nscl.methods.base import Batch, Lab
from nscl.methods.replay.base import Replay, ReplayOptions
from nscl.methods.replay.flat_gradients import angle, inner


class AGEMOptions(ReplayOptions):
    """The reference batch; the budget is that of all replay methods."""

    reference_batch: PositiveInt = 256  # images of the memory per step, or all if there are fewer


class AGEM(Replay):
    """One constraint for all old tasks together, and its projection in closed form."""

    options_type = AGEMOptions

    def __init__(self, lab: Lab, options: AGEMOptions) -> None:
        super().__init__(lab, options)
        self.reference_batch = options.reference_batch
        self._reference = 0.0, torch.empty(0)

    def recall(self) -> None:
        """Loss and gradient of a batch of the memory."""
        self._reference = self.reference_gradient(self.reference_batch)

    def corrected(self, gradient: Tensor, batch: Batch) -> Tensor:
        """Remove what points against the reference gradient, if anything does."""
        loss, reference = self._reference
        pair = torch.stack([gradient, reference])
        products = inner(pair, pair)
        weight = reference_weight(products)
        turned = angle(products)
        self.averages.add(
            1,
            violated=weight > 0,
            angle=turned,
            removed=max(0.0, -math.cos(turned)) if weight > 0 else 0.0,
            reference_loss=loss,
        )
        return gradient + weight * reference if weight > 0 else gradient


def reference_weight(products: Tensor) -> float:
    """The c of g̃ = g + c·r, from the Gram matrix of (g, r); 0 where nothing is violated.

    >>> g, r = torch.tensor([2.0, 1.0]), torch.tensor([-1.0, 1.0])
    >>> rows = torch.stack([g, r])
    >>> g + reference_weight(rows @ rows.T) * r
    tensor([1.5000, 1.5000])
    """
    overlap, square = float(products[0, 1]), float(products[1, 1])
    # A memory that is learned perfectly has no gradient, and asks for nothing.
    return -overlap / square if overlap < 0 < square else 0.0
