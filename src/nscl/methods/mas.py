"""MAS: parameters are held as firmly as the network's answers depend on them; no labels needed.

Memory Aware Synapses (Aljundi et al., ECCV 2018). METHODS §6::

    Ω_i = 1/N Σ_n | ∂‖f(x_n)‖² / ∂w_i |        f: raw logits of the finished task's head
    CE + strength/2 · Σ_i Ω_i (w_i − w*_i)²    Ω adds up over tasks, w* is the latest

The absolute value is of single samples: within a batch signs would cancel. The squared norm is a
sum over classes. From other code: the authors' λ (gradient 2λΩδ) is strength 2λ; where the norm is
a mean over K classes and the penalty has no ½, λ is strength 2λ/K.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat

from nscl.methods.base import Lab
from nscl.methods.importance_pass import PassOptions, pass_batches
from nscl.methods.mas_importance import mas_importance
from nscl.methods.penalty import PenaltyMethod, PenaltyOptions
from nscl.methods.sample_gradients import through


class MASOptions(PenaltyOptions, PassOptions):
    """Strength, and how importances of several tasks come together."""

    strength: PositiveFloat = 0.01
    accumulate: Literal["sum", "running_mean"] = "sum"  # the authors add up
    old_share: float = Field(0.5, gt=0, lt=1)  # running_mean: Ω ← share·Ω + (1 − share)·new
    unit: Literal["sample", "batch"] = "sample"  # batch: signs cancel, a surrogate

    def unread(self) -> Mapping[str, str]:
        """A sum has no shares."""
        return {"old_share": "accumulate running_mean"} if self.accumulate == "sum" else {}


class MAS(PenaltyMethod):
    """Hold every shared parameter with the sensitivity of the outputs to it."""

    options_type = MASOptions
    tuning: ClassVar = {"strength": (1e-3, 0.01, 0.1, 1.0, 10.0)}

    def __init__(self, lab: Lab, options: MASOptions) -> None:
        super().__init__(lab, options)
        self.choices = options

    def remember(self, task: int) -> None:
        """One pass over the task's pictures."""
        shared = self.shared_parameters()
        choices, split = self.choices, self.training_split(task)
        found = mas_importance(
            self.model,
            pass_batches(self.lab, split, task, choices, unit=choices.unit),
            output=through(self.model, task),
            parameters=shared,
            unit=choices.unit,
        )
        keep = 1.0
        if choices.accumulate == "running_mean" and task > 0:
            keep = choices.old_share
            found = {name: (1.0 - keep) * new for name, new in found.items()}
        self.penalty.move(found, shared, keep=keep)
