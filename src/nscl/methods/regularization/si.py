"""SI: parameters are held as firmly as they helped the loss to fall on their way.

Synaptic Intelligence (Zenke et al., ICML 2017); docs/methods.md, "SI". Along the path of task t::

    path_i −= g_i · Δw_i                                  g: gradient of the task's loss alone
    Ω_i    += max(0, path_i / ((w_i − w*_i)² + ξ))        at the task's end; then w* ← w, path ← 0
    CE + strength/2 · Σ_i Ω_i (w_i − w*_i)²

Δw is what the optimizer really did, momentum and Adam's scaling included. The authors' c has no
factor ½: strength is 2c, and 2 is the value at which the penalty of a quadratic loss is that loss.
ξ should be small against squared movements, or it is all of the denominator. Weight decay moves
weights without being in g: keep it 0, or accept the bias.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import PositiveFloat
from torch import Tensor

from nscl.methods.base import Batch, Lab, Phase
from nscl.methods.regularization.penalty import PenaltyMethod, PenaltyOptions
from nscl.methods.regularization.per_sample_grads import Tensors


class SIOptions(PenaltyOptions):
    """Strength and damping."""

    strength: PositiveFloat = 2.0
    xi: PositiveFloat = 0.1  # the authors take 0.1 (permuted MNIST) and 1e-3 (CIFAR)


def path_importance(path: Tensor, moved: Tensor, xi: float) -> Tensor:
    """A task's share of the importance; a parameter that made the loss rise has none.

    >>> path_importance(torch.tensor([0.5, -0.5]), torch.tensor([1.0, 1.0]), 0.25)
    tensor([0.4000, 0.0000])
    """
    return (path / (moved.square() + xi)).clamp_min(0.0)


class SI(PenaltyMethod[SIOptions]):
    """Hold every shared parameter with its share of the loss's fall.

    One backward pass per step: the penalty's gradient is added in closed form, after the task's
    own has been put aside.
    """

    options_type = SIOptions
    scenarios = ("task", "domain", "class")
    tuning: ClassVar = {"strength": (0.2, 0.6, 2.0, 6.0, 20.0)}

    def __init__(self, lab: Lab, options: SIOptions) -> None:
        super().__init__(lab, options)
        self._path: Tensors = {}
        self._before: dict[str, tuple[Tensor, Tensor]] = {}  # weight, gradient

    def start_task(self, task: int) -> None:
        """Begin a path; the first one starts at the initial weights, which nothing holds."""
        shared = self.shared_parameters()
        self._path = {name: torch.zeros_like(p.detach()) for name, p in shared.items()}
        if task == 0:
            self.penalty.move(self._path, shared)

    def after_backward(self, batch: Batch, phase: Phase) -> None:
        """Put weights and the task's gradient aside, then add the penalty's."""
        self._before = {
            name: (p.detach().clone(), p.grad.clone())
            for name, p in self.shared_parameters().items()
            if p.grad is not None
        }
        super().after_backward(batch, phase)

    def after_step(self, batch: Batch, phase: Phase) -> None:
        """Follow the path."""
        shared = self.shared_parameters()
        for name, (weight, gradient) in self._before.items():
            self._path[name].addcmul_(gradient, shared[name].detach() - weight, value=-1.0)

    def remember(self, task: int) -> None:
        """Turn the path into importances."""
        shared, xi, start = self.shared_parameters(), self.choices.xi, self.penalty.centre
        found = {
            name: path_importance(path, shared[name].detach() - start[name], xi)
            for name, path in self._path.items()
        }
        self.penalty.move(found, shared)

    def metrics(self) -> dict[str, float]:
        """The penalty, and by how much this task's path claims to have lowered the loss."""
        fall = sum(float(path.sum()) for path in self._path.values())
        return {**super().metrics(), "path": fall}

    def state_bytes(self) -> int:
        """Importances, weights and the path."""
        return super().state_bytes() + sum(path.nbytes for path in self._path.values())

    def epoch_state(self) -> dict[str, Any]:
        """The path so far."""
        return {"path": self._path}

    def load_epoch_state(self, state: Mapping[str, Any]) -> None:
        """Restore it."""
        self._path = {name: t.to(self.lab.device) for name, t in state["path"].items()}
