"""Norm layers are held in place by EWC, at a cost that does not grow with the number of tasks.

After each task ``F = Σ_batches B·(∂L/∂w)² / batches`` and the penalty is
``strength · Σ_tasks F_t (w − w*_t)²`` (docs/methods.md, "Adam-NSCL"): one parabola.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nscl.core.capture.losses import default_loss
from nscl.core.distributed.fsdp import whole
from nscl.core.norms.parabola import Parabola
from nscl.core.padding.padding import Padding
from nscl.core.report import listed
from nscl.errors import FeatureError

STRENGTH = 100.0  # the authors' coefficient, without a factor ½


@dataclass(frozen=True)
class Anchor:
    """ΣF and ΣF·w* of one parameter (float64), and how many batches the last F was taken over.

    What memory files hold: sums lose nothing when tasks, or parts of one, come together.
    """

    fisher: Tensor
    pull: Tensor
    batches: int

    def parabola(self, strength: float = STRENGTH) -> Parabola:
        """``strength · Σ F (w − w*)²``, but for a constant.

        >>> anchor = Anchor(torch.tensor([2.0]), torch.tensor([6.0]), 1)
        >>> anchor.parabola().centre, anchor.parabola().gradient(torch.tensor([4.0]))
        (tensor([3.]), tensor([400.]))
        """
        centre = torch.where(self.fisher > 0, self.pull / self.fisher, 0.0)
        return Parabola(2.0 * strength * self.fisher, centre)

    def plus(self, other: "Anchor") -> "Anchor":
        """One more task."""
        return Anchor(self.fisher + other.fisher, self.pull + other.pull, other.batches)

    def mixed(self, other: "Anchor") -> "Anchor":
        """The same task seen in two parts: F is a mean over batches."""
        total = self.batches + other.batches
        mine, theirs = self.batches / total, other.batches / total
        return Anchor(
            mine * self.fisher + theirs * other.fisher,
            mine * self.pull + theirs * other.pull,
            total,
        )


class FisherAccumulator:
    """Adds up ``B·G²`` over the batches of one pass."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self.parameters = dict(parameters)
        self.sums = {
            name: torch.zeros(tuple(p.shape), dtype=torch.float64, device="cpu")
            for name, p in self.parameters.items()
        }
        self.reached: set[str] = set()  # what any loss depends on
        self.batches = 0

    def add(self, loss: Any, samples: int) -> None:
        """Add one batch's squared mean gradient, weighted by its size."""
        self.check(loss)
        gradients = torch.autograd.grad(loss, list(self.parameters.values()), allow_unused=True)
        self.add_gradients(gradients, samples)

    def loss(
        self, output: Any, given: Callable[[], Any] | None, padding: Padding | None = None
    ) -> Tensor:
        """What to differentiate for one batch: the caller's loss, or one that needs no labels."""
        value = default_loss(output, padding) if given is None else given()
        if given is None and not value.requires_grad:
            raise FeatureError(
                "the model's output has no gradient (torch.no_grad in forward=, or a detached "
                "output), which norms='ewc' needs: let gradients through, or use norms='freeze' "
                "or 'train'"
            )
        self.check(value)
        return value

    def check(self, loss: Any) -> None:
        """Refuse a loss that has no usable gradient."""
        if not isinstance(loss, Tensor) or loss.ndim != 0 or not loss.requires_grad:
            what = f"of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
            raise FeatureError(
                "the loss given to remember must be a scalar tensor that depends on the model's "
                f"parameters, not {what}"
            )
        if not torch.isfinite(loss):
            raise FeatureError(
                f"the loss of batch {self.batches} is not finite: correct the data or the "
                "weights, or give remember another loss=..."
            )

    def add_gradients(self, gradients: Sequence[Tensor | None], samples: int) -> None:
        """Add one batch's mean gradients, in the parameters' order."""
        for name, gradient in zip(self.parameters, gradients, strict=True):
            if gradient is not None:
                square = whole(gradient).double().cpu().square()
                if not torch.isfinite(square).all():
                    raise FeatureError(
                        f"the loss of batch {self.batches} is finite, but not its gradient with "
                        f"respect to {name}: give remember a loss=..., or use norms='freeze'"
                    )
                self.sums[name] += samples * square
                self.reached.add(name)
        self.batches += 1

    def anchors(self) -> dict[str, Anchor]:
        """Anchor every parameter that a loss depends on at its present value.

        The others have no F: an anchor of zeros would be reported as protection and hold nothing.
        """
        found = {}
        for name, parameter in self.parameters.items():
            if name in self.reached:
                fisher = self.sums[name] / self.batches
                weight = whole(parameter.detach()).double().cpu()
                found[name] = Anchor(fisher, fisher * weight, self.batches)
        return found


def describe_unreached(names: Sequence[str]) -> Iterator[str]:
    """The warning that these norm parameters ran, but no loss depends on them."""
    if names:
        yield (
            f"not anchored: {listed(names)}: these norm layers ran, but no gradient of the loss "
            "reaches them, so norms='ewc' leaves them free: give remember a loss=... that depends "
            "on them, or use norms='freeze'"
        )
