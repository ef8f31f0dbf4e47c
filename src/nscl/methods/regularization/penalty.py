"""A quadratic penalty on shared parameters, at a cost that does not grow with tasks.

``strength/2 · Σ_tasks Σ_i Ω_i (w_i − w*_i)²`` is, whatever the number of tasks, one parabola: its
curvature is ``ΣΩ``, its centre ``ΣΩ·w* / ΣΩ``, and a number is left over. Its gradient
``strength · Ω (w − centre)`` is added to the task's own after the backward pass, so the loss that
is logged stays the task's. The centre is kept, not ``ΣΩ·w*``: the difference of two large
products would lose in float32 what the difference of two weights keeps.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from nscl.methods.base import Batch, Lab, Method, Options, Phase
from nscl.methods.regularization.per_sample_grads import Tensors


class Parabola:
    """``½ Σ_i Ω_i (w_i − c_i)² + rest``, over parameters by name; empty, it is 0 everywhere.

    >>> bowl = Parabola()
    >>> bowl.add({"w": torch.tensor([1.0])}, {"w": torch.tensor([0.0])})
    >>> bowl.add({"w": torch.tensor([3.0])}, {"w": torch.tensor([2.0])})
    >>> bowl.centre["w"], bowl.value({"w": torch.tensor([0.0])})  # ½·1·0² + ½·3·2²
    (tensor([1.5000]), 6.0)
    """

    def __init__(self) -> None:
        self.importance: Tensors = {}
        self.centre: Tensors = {}
        self.rest = 0.0

    def add(self, importance: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
        """Add ``½ Σ Ω (w − weights)²``: a penalty of its own for every task."""
        for name, new in importance.items():
            weight = weights[name].detach()
            if name not in self.importance:
                self.importance[name], self.centre[name] = new.clone(), weight.clone()
                continue
            old, gap = self.importance[name], weight - self.centre[name]
            total = old + new
            share = torch.where(total > 0, new / total, torch.zeros_like(total))
            self.rest += 0.5 * float((old * share * gap.square()).sum())
            self.centre[name] = self.centre[name] + share * gap
            self.importance[name] = total

    def move(
        self, importance: Mapping[str, Tensor], weights: Mapping[str, Tensor], *, keep: float = 1.0
    ) -> None:
        """One penalty for all tasks: ``Ω ← keep·Ω + new``, centred at ``weights``."""
        for name, new in importance.items():
            old = self.importance.get(name)
            self.importance[name] = new.clone() if old is None else keep * old + new
            self.centre[name] = weights[name].detach().clone()

    def add_gradient(self, parameters: Mapping[str, nn.Parameter], strength: float) -> None:
        """Add ``strength · Ω (w − c)`` to the parameters' gradients."""
        for name, importance in self.importance.items():
            parameter = parameters[name]
            gap = parameter.detach() - self.centre[name]
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad.addcmul_(importance.to(gap.dtype), gap, value=strength)

    def pull(self, weights: Mapping[str, Tensor], strength: float) -> Tensor:
        """The length of what ``add_gradient`` adds."""
        slopes = (
            importance * (weights[name].detach() - self.centre[name])
            for name, importance in self.importance.items()
        )
        return strength * torch.stack([slope.square().sum() for slope in slopes]).sum().sqrt()

    def value(self, weights: Mapping[str, Tensor]) -> float:
        """The parabola's value at ``weights``."""
        gaps = {name: weights[name].detach() - centre for name, centre in self.centre.items()}
        terms = (self.importance[name] * gap.square() for name, gap in gaps.items())
        return self.rest + 0.5 * sum(float(term.sum()) for term in terms)

    def steepest(self) -> float:
        """The largest curvature of any parameter."""
        return max((float(value.max()) for value in self.importance.values()), default=0.0)

    def nbytes(self) -> int:
        """Bytes of both tensors of every parameter."""
        return sum(t.nbytes for kept in (self.importance, self.centre) for t in kept.values())

    def state_dict(self) -> dict[str, Any]:
        """Everything, as tensors and a number."""
        return {"importance": self.importance, "centre": self.centre, "rest": self.rest}

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Take ``state_dict`` back, onto a device."""
        self.importance = {name: t.to(device) for name, t in state["importance"].items()}
        self.centre = {name: t.to(device) for name, t in state["centre"].items()}
        self.rest = float(state["rest"])


def shared_parameters(lab: Lab) -> dict[str, nn.Parameter]:
    """The parameters that later tasks could spoil, by name.

    They are the backbone's with its normalisation layers', and the one head of a domain or class
    stream; a head of its own per task needs no penalty, as it is not trained again. Rows of a
    growing head that no task has used have no importance: nothing pulls them.
    """
    named = dict(lab.model.backbone_parameters())
    if lab.stream.scenario != "task":
        named |= dict(lab.model.answering_parameters(lab.tasks - 1))
    return {name: p for name, p in named.items() if p.requires_grad}


class PenaltyOptions(Options):
    """What all quadratic penalties share."""

    strength: PositiveFloat  # with the factor ½: twice the number of a paper that has none
    # Plain SGD diverges where lr · strength · Ω > 2 (metric ``curvature``); clipping prevents it.
    clip_norm: PositiveFloat | None = None


P = TypeVar("P", bound=PenaltyOptions)


class PenaltyMethod(Method, ABC, Generic[P]):
    """Learn a task while a penalty holds what earlier tasks need; subclasses define its shape."""

    def __init__(self, lab: Lab, options: P) -> None:
        super().__init__(lab, options)
        self.choices = options
        self.penalty = Parabola()
        self._learned: list[nn.Parameter] = []

    def shared_parameters(self) -> dict[str, nn.Parameter]:
        """What the penalty holds."""
        return shared_parameters(self.lab)

    def optimizer(self, task: int, phase: Phase) -> Optimizer:
        """The usual optimizer; what it moves is what is clipped.

        Old heads hold the gradients of their last step, which nothing clears.
        """
        optimizer = super().optimizer(task, phase)
        self._learned = [p for group in optimizer.param_groups for p in group["params"]]
        return optimizer

    def after_backward(self, batch: Batch, phase: Phase) -> None:
        """Add the penalty's gradient."""
        self.penalty.add_gradient(self.shared_parameters(), self.choices.strength)
        if self.choices.clip_norm is not None:
            clip_grad_norm_(self._learned, self.choices.clip_norm)

    def end_task(self, task: int) -> None:
        """Remember the task; after the last one nothing can be forgotten any more."""
        if task + 1 < self.lab.tasks:
            self.remember(task)

    @abstractmethod
    def remember(self, task: int) -> None:
        """Give the penalty its new shape."""

    def metrics(self) -> dict[str, float]:
        """The penalty now, and its largest curvature."""
        if not self.penalty.importance:
            return {}
        return {
            "penalty": self.choices.strength * self.penalty.value(self.shared_parameters()),
            "curvature": self.choices.strength * self.penalty.steepest(),
        }

    def state_bytes(self) -> int:
        """Importances and the weights they are centred at."""
        return self.penalty.nbytes()

    def task_state(self) -> dict[str, Any]:
        """The parabola."""
        return self.penalty.state_dict()

    def load_task_state(self, state: Mapping[str, Any]) -> None:
        """Take it back."""
        self.penalty.load_state_dict(state, self.lab.device)
