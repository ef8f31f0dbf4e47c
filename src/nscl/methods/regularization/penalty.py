"""A quadratic penalty on shared parameters, at a cost that does not grow with tasks.

``strength/2 · Σ_tasks Σ_i Ω_i (w_i − w*_i)²`` is, whatever the number of tasks, one parabola of
each parameter and a number that is left over. Its gradient is added to the task's own after the
backward pass, so the loss that is logged stays the task's.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from nscl.core.norms.parabola import Parabola
from nscl.methods.base import Batch, Lab, Method, Options, Phase
from nscl.methods.regularization.per_sample_grads import Tensors


class QuadraticPenalty:
    """``½ Σ_i Ω_i (w_i − c_i)² + rest``, over parameters by name; empty, it is 0 everywhere.

    >>> penalty = QuadraticPenalty()
    >>> penalty.add({"w": torch.tensor([1.0])}, {"w": torch.tensor([0.0])})
    >>> penalty.add({"w": torch.tensor([3.0])}, {"w": torch.tensor([2.0])})
    >>> penalty.centre["w"], penalty.value({"w": torch.tensor([0.0])})  # ½·1·0² + ½·3·2²
    (tensor([1.5000]), 6.0)
    """

    def __init__(self) -> None:
        self._parabolas: dict[str, Parabola] = {}
        self.rest = 0.0

    @property
    def importance(self) -> Tensors:
        """Ω of every parameter."""
        return {name: parabola.curvature for name, parabola in self._parabolas.items()}

    @property
    def centre(self) -> Tensors:
        """Where every parameter is held."""
        return {name: parabola.centre for name, parabola in self._parabolas.items()}

    def add(self, importance: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
        """Add ``½ Σ Ω (w − weights)²``: a penalty of its own for every task."""
        for name, curvature in importance.items():
            new, old = _at(curvature, weights[name]), self._parabolas.get(name)
            if old is not None:
                self.rest += old.height(new)
            self._parabolas[name] = new if old is None else old.plus(new)

    def move(
        self, importance: Mapping[str, Tensor], weights: Mapping[str, Tensor], *, keep: float = 1.0
    ) -> None:
        """One penalty for all tasks: ``Ω ← keep·Ω + new``, centred at ``weights``."""
        for name, new in importance.items():
            old = self._parabolas.get(name)
            total = new if old is None else keep * old.curvature + new
            self._parabolas[name] = _at(total, weights[name])

    def add_gradient(self, parameters: Mapping[str, nn.Parameter], strength: float) -> None:
        """Add ``strength · Ω (w − c)`` to the parameters' gradients."""
        for name, parabola in self._parabolas.items():
            parameter = parameters[name]
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad.add_(parabola.gradient(parameter.detach()), alpha=strength)

    def pull(self, weights: Mapping[str, Tensor], strength: float) -> Tensor:
        """The length of what ``add_gradient`` adds."""
        slopes = (p.gradient(weights[name].detach()) for name, p in self._parabolas.items())
        return strength * torch.stack([slope.square().sum() for slope in slopes]).sum().sqrt()

    def value(self, weights: Mapping[str, Tensor]) -> float:
        """How much it is at ``weights``."""
        return self.rest + sum(p.value(weights[name]) for name, p in self._parabolas.items())

    def steepest(self) -> float:
        """The largest curvature of any parameter."""
        return max((float(omega.max()) for omega in self.importance.values()), default=0.0)

    def nbytes(self) -> int:
        """Bytes of both tensors of every parameter."""
        return sum(parabola.nbytes for parabola in self._parabolas.values())

    def state_dict(self) -> dict[str, Any]:
        """Everything, as tensors and a number."""
        return {"importance": self.importance, "centre": self.centre, "rest": self.rest}

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Take ``state_dict`` back, onto a device."""
        self._parabolas = {
            name: Parabola(importance, state["centre"][name]).to(device)
            for name, importance in state["importance"].items()
        }
        self.rest = float(state["rest"])


def _at(importance: Tensor, weight: Tensor) -> Parabola:
    """A penalty of its own tensors: weights go on being trained."""
    return Parabola(importance.clone(), weight.detach().clone())


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
        self.penalty = QuadraticPenalty()
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
