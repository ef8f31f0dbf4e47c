"""MAS: parameters are held as firmly as the network's answers depend on them; no labels needed.

Memory Aware Synapses (Aljundi et al., ECCV 2018); docs/methods.md, "MAS"::

    Ω_i = 1/N Σ_n | ∂‖f(x_n)‖² / ∂w_i |        f: raw logits of the finished task's head
    CE + strength/2 · Σ_i Ω_i (w_i − w*_i)²    Ω adds up over tasks, w* is the latest

The absolute value is of single samples: within a batch signs would cancel. The squared norm is a
sum over classes. From other code: the authors' λ (gradient 2λΩδ) is strength 2λ; where the norm is
a mean over K classes and the penalty has no ½, λ is strength 2λ/K.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat
from torch import Tensor, nn

from nscl.data.inputs import Inputs
from nscl.methods.regularization.importance_pass import ImportanceMethod, ImportanceOptions
from nscl.methods.regularization.per_sample_grads import (
    Output,
    Tensors,
    Unit,
    importances,
    through,
)


class MASOptions(ImportanceOptions):
    """Strength, and how importances of several tasks come together."""

    used_with: ClassVar[Mapping[str, str]] = {"old_share": "accumulate running_mean"}

    strength: PositiveFloat = 0.01
    accumulate: Literal["sum", "running_mean"] = "sum"  # the authors add up
    old_share: float = Field(0.5, gt=0, lt=1)  # running_mean: Ω ← share·Ω + (1 − share)·new
    unit: Literal["sample", "batch"] = "sample"  # batch: signs cancel, a surrogate


class MAS(ImportanceMethod[MASOptions]):
    """Hold every shared parameter with the sensitivity of the outputs to it."""

    options_type = MASOptions
    scenarios = ("task", "domain", "class")
    tuning: ClassVar = {"strength": (0.01, 0.03, 0.1, 0.3, 1.0)}

    def remember(self, task: int) -> None:
        """One pass over the task's pictures."""
        shared, choices = self.shared_parameters(), self.choices
        found = mas_importance(
            self.model,
            self.finished_task(task, unit=choices.unit),
            output=through(self.model, task),
            parameters=shared,
            unit=choices.unit,
        )
        keep = 1.0
        if choices.accumulate == "running_mean" and task > 0:
            keep = choices.old_share
            found = {name: (1.0 - keep) * new for name, new in found.items()}
        self.penalty.move(found, shared, keep=keep)


def mas_importance(
    model: nn.Module,
    batches: Iterable[tuple[Inputs, Tensor]],
    *,
    output: Output,
    parameters: Mapping[str, Tensor],
    unit: Unit = "sample",
) -> Tensors:
    """Mean absolute gradient of ``‖output(parameters, inputs)‖²``; labels are ignored.

    >>> import torch
    >>> model = nn.Linear(1, 1)
    >>> line = lambda theta, x: x * theta["w"]
    >>> data = [(torch.tensor([[1.0], [2.0]]), torch.zeros(2))]
    >>> mas_importance(model, data, output=line, parameters={"w": torch.tensor([-0.5])})
    {'w': tensor([2.5000])}
    """
    return importances(
        model,
        batches,
        output=output,
        parameters=parameters,
        directions=norm_directions,
        magnitude="absolute",
        unit=unit,
    )


def norm_directions(logits: Tensor, labels: Tensor) -> Iterator[Tensor]:
    """Gradient of the squared norm of the logits, by the logits."""
    yield 2.0 * logits
