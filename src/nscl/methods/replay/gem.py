"""GEM: no step may raise the loss on any old task's memory (Lopez-Paz & Ranzato, NIPS 2017).

With g_k the gradient on everything kept of old task k: if ⟨g, g_k⟩ ≥ 0 for all k the step is left
alone, else g becomes g̃ = g + Σ v_k·g_k, the closest vector that keeps all constraints (``qp.py``).
The guarantee is of first order, and for plain SGD only: momentum, decay and Adam leave the cone
(docs/methods.md, "GEM"). A margin above 0 demands more than that: as soon as one constraint is
violated every old task is helped by at least margin·g_k, violated or not.

Cost: one pass over each old task's memory per step, so a step of task t costs t extra passes, and t
gradients are held in float32 on the device. It is the one method whose steps cost more with every
task. Task and domain streams.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from nscl.methods.base import Batch, Lab
from nscl.methods.replay.base import Replay, ReplayOptions
from nscl.methods.replay.flat_gradients import angle, inner
from nscl.methods.replay.qp import QPError, solve_dual

# Means over all steps of a task; a step that is left alone turns by an angle of 0.
_FIGURES = ("violated", "constraints", "unsolved", "angle", "weight")


class GEMOptions(ReplayOptions):
    """The two numbers of the quadratic program; the budget is that of all replay methods."""

    # Least weight of an old task's gradient in a corrected step; 0 is the pure projection. It is
    # relative to |g| / |g_k|, so its effect depends on how well old and new tasks are learned.
    margin: NonNegativeFloat = 0.5
    eps: NonNegativeFloat = 1e-3  # on the diagonal of the Gram matrix, for its solver


class GEM(Replay):
    """One constraint per old task; only the t × t Gram matrix and t products leave the device."""

    options_type = GEMOptions
    tuning: ClassVar[Mapping[str, tuple[float, ...]]] = {"margin": (0.0, 0.5)}

    def __init__(self, lab: Lab, options: GEMOptions) -> None:
        super().__init__(lab, options)
        self.choices = options
        self._rows = torch.empty(0, 0)

    def recall(self) -> None:
        """One row per old task, one task at a time, into a buffer that is kept between steps."""
        tasks = self.memory.tasks
        shape = (len(tasks), sum(p.numel() for p in self._learned))
        if self._rows.shape != shape:
            self._rows = self._learned[0].new_empty(shape)
        for row, task in enumerate(tasks):
            self._rows[row] = self.task_gradient(task)

    def corrected(self, gradient: Tensor, batch: Batch) -> Tensor:
        """Project, if a constraint is violated; where the solver fails, g is used and counted."""
        rows = self._rows
        products = inner(rows, gradient[None])[:, 0]
        figures = dict.fromkeys(_FIGURES, 0.0)
        figures["constraints"] = float((products < 0).double().mean())
        corrected = gradient
        if not bool((products >= 0).all()):  # also where one is NaN, which the solver refuses
            figures["violated"] = 1.0
            try:
                weights = self._weights(inner(rows, rows), products)
            except QPError:
                figures["unsolved"] = 1.0
            else:
                corrected = gradient + weights.to(rows) @ rows
                figures["angle"] = _between(gradient, corrected)
                figures["weight"] = float(weights.mean())
        self.averages.add(1, **figures)
        return corrected

    def _weights(self, gram: Tensor, products: Tensor) -> Tensor:
        choices = self.choices
        return torch.from_numpy(
            solve_dual(gram.numpy(), products.numpy(), margin=choices.margin, eps=choices.eps)
        )


def _between(left: Tensor, right: Tensor) -> float:
    pair = torch.stack([left, right])
    return angle(inner(pair, pair))
