"""Which directions of a layer's input space are free: eigenvalues in, weights in [0, 1] out.

One mechanism, four published families. Every rule first frees what the data never used: an
eigenvalue at or below the noise floor is zero up to rounding, whatever the rule, and gets weight
1. Without that, ``λ ≤ a·λ_min`` compares rounding noise with rounding noise: the authors' float32
rule keeps 5 of 4608 directions, and at least 2,096 are exactly free (docs/methods.md, "Adam-NSCL").

Rules work on the last dimension, in any order of the eigenvalues, so grouped layers need no loop.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from nscl.core.projection.kronecker import LARGEST, smallest_multiplier
from nscl.messages import did_you_mean


@runtime_checkable
class Rule(Protocol):
    """A frozen dataclass that maps eigenvalues to the weight each direction keeps."""

    soft: ClassVar[bool]
    exact: ClassVar[bool]  # asks for products in float64, whatever the features are in

    @property
    def literal(self) -> bool:
        """Whether the authors' float32 numerics are asked for."""
        ...

    def __call__(
        self, eigenvalues: Tensor, *, tasks: int = 1, floor: Tensor | float | None = None
    ) -> Tensor:
        """Weights in [0, 1]: 1 = free to move, 0 = held."""
        ...


class NotLiteral:
    """A rule without the authors' numerics: nothing of theirs to reproduce."""

    exact: ClassVar[bool] = False

    @property
    def literal(self) -> bool:
        """Only ``Ratio`` can be taken literally."""
        return False


def default_floor(eigenvalues: Tensor) -> Tensor:
    """``d · eps · λ_max``: what an eigenvalue of an exactly singular float64 matrix looks like."""
    eps = torch.finfo(eigenvalues.dtype).eps
    return eigenvalues.shape[-1] * eps * eigenvalues.amax(-1, keepdim=True)


def _noise(eigenvalues: Tensor, floor: Tensor | float | None) -> Tensor:
    return eigenvalues <= (default_floor(eigenvalues) if floor is None else floor)


def _positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive number, not {value!r}")


def _fraction(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, not {value!r}")


@dataclass(frozen=True)
class Ratio:
    """The paper's rule ``λ ≤ a·λ_min`` made safe: λ_min is the smallest eigenvalue above the noise.

    With ``literal=True`` the rule is taken to the letter, on a float32 singular value decomposition
    and without a noise floor, as the authors' code does; only for reproducing its artefacts.

    >>> Ratio(10.0)(torch.tensor([0.01, 1.0, 4.0]))
    tensor([1., 0., 0.])
    """

    a: float = 10.0
    literal: bool = False
    soft: ClassVar[bool] = False
    exact: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _positive("Ratio: a", self.a)

    def __call__(
        self, eigenvalues: Tensor, *, tasks: int = 1, floor: Tensor | float | None = None
    ) -> Tensor:
        """Free the noise, and all eigenvalues up to ``a`` times the smallest that is not noise."""
        if self.literal:
            smallest = eigenvalues.amin(-1, keepdim=True)
            return (eigenvalues <= self.a * smallest).to(eigenvalues.dtype)
        noise = _noise(eigenvalues, floor)
        smallest = eigenvalues.masked_fill(noise, math.inf).amin(-1, keepdim=True)
        return (noise | (eigenvalues <= self.a * smallest)).to(eigenvalues.dtype)


@dataclass(frozen=True)
class Energy(NotLiteral):
    """Free the largest set of smallest eigenvalues whose share R of their sum is at most ``share``.

    >>> Energy(0.05)(torch.tensor([1.0, 2.0, 97.0]))
    tensor([1., 1., 0.])
    """

    share: float = 0.05
    soft: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _fraction("Energy: share", self.share)

    def __call__(
        self, eigenvalues: Tensor, *, tasks: int = 1, floor: Tensor | float | None = None
    ) -> Tensor:
        """Cumulate from the smallest; noise is free without being counted."""
        noise = _noise(eigenvalues, floor)
        ordered, order = eigenvalues.masked_fill(noise, 0.0).sort(dim=-1)
        budget = self.share * ordered.sum(-1, keepdim=True)
        weights = torch.zeros_like(eigenvalues)
        weights.scatter_(-1, order, (ordered.cumsum(-1) <= budget).to(eigenvalues.dtype))
        return weights.masked_fill(noise, 1.0)


@dataclass(frozen=True)
class Tolerance(NotLiteral):
    """Free what is below ``rtol`` times the largest eigenvalue: a numerical null space.

    The rounding of float32 products would hide eigenvalues far above ``rtol``, and what it hides is
    free: this rule has products formed in float64.

    >>> Tolerance(1e-3)(torch.tensor([0.001, 0.5, 1.0]))
    tensor([1., 0., 0.])
    """

    rtol: float = 1e-10
    soft: ClassVar[bool] = False
    exact: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _fraction("Tolerance: rtol", self.rtol)

    def __call__(
        self, eigenvalues: Tensor, *, tasks: int = 1, floor: Tensor | float | None = None
    ) -> Tensor:
        """Compare with the largest eigenvalue."""
        small = eigenvalues <= self.rtol * eigenvalues.amax(-1, keepdim=True)
        return (_noise(eigenvalues, floor) | small).to(eigenvalues.dtype)


@dataclass(frozen=True)
class Ridge(NotLiteral):
    """The soft projector that OWM converges to: weight ``1 / (1 + T·λ / (alpha·λ̄))``.

    λ̄ is the mean eigenvalue, so ``alpha`` has no unit; T counts the tasks remembered, because the
    covariance is their mean and a later task must not dilute an earlier one.

    >>> Ridge(1.0)(torch.tensor([1.0, 3.0]))
    tensor([0.6667, 0.4000])
    """

    alpha: float = 10.0
    soft: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _positive("Ridge: alpha", self.alpha)

    def __call__(
        self, eigenvalues: Tensor, *, tasks: int = 1, floor: Tensor | float | None = None
    ) -> Tensor:
        """Shrink each direction by how much energy the data have in it."""
        mean = eigenvalues.mean(-1, keepdim=True)
        relative = tasks * eigenvalues / (self.alpha * mean)
        weights = 1.0 / (1.0 + torch.where(mean > 0, relative, 0.0))
        return weights.masked_fill(_noise(eigenvalues, floor), 1.0)


class Proximal(NotLiteral, ABC):
    """A rule on the whole displacement since the last ``remember``, treated by a proximal step.

    What is held, and how much, depends on the displacement itself and on the optimizer's rate, so
    ``weights`` in [0, 1] only describe it: ``1/(1 + T·λ/λ̄)`` per input direction.
    """

    soft: ClassVar[bool] = True
    needs_rate: ClassVar[bool] = False

    def __call__(
        self, eigenvalues: Tensor, *, tasks: int = 1, floor: Tensor | float | None = None
    ) -> Tensor:
        """How free each input direction is at strength 1, for reports."""
        return Ridge(1.0)(eigenvalues, tasks=tasks, floor=floor)

    @abstractmethod
    def multiplier(
        self, ratios: Tensor, squares: Tensor, *, rate: float, allowance: float
    ) -> float:
        """M of the step ``E ← E / (1 + m·r)``, given r, E², the sum of rates and the allowance."""

    def allowance(self, energy: float) -> float:
        """What a layer may cost, given what its remembered weights would."""
        return math.inf


@dataclass(frozen=True)
class Penalty(Proximal):
    """Add ``strength/2 · tr(G̃ ΔW C̃ ΔWᵀ)`` to the loss, by a proximal step after the optimizer's.

    Decoupled from the optimizer, as AdamW's weight decay is: after steps with learning rates η the
    displacement is divided by ``1 + strength·Ση·r`` along each direction.

    >>> Penalty(2.0).multiplier(torch.ones(1), torch.ones(1), rate=0.25, allowance=0.0)
    0.5
    """

    strength: float = 5.0
    needs_rate: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _positive("Penalty: strength", self.strength)

    def multiplier(
        self, ratios: Tensor, squares: Tensor, *, rate: float, allowance: float
    ) -> float:
        """The strength times the sum of the learning rates."""
        return min(LARGEST, self.strength * rate)


@dataclass(frozen=True)
class Budget(Proximal):
    """Keep each layer's relative drift on old data at or below ``drift``, and change nothing else.

    The displacement is projected onto the ellipsoid ``tr(G ΔW C ΔWᵀ) ≤ drift · tr(G W* C W*ᵀ)``:
    free of rates, epochs and optimizers, and a guarantee that ``forgetting()`` can check.

    >>> rule = Budget(0.25)
    >>> m = rule.multiplier(
    ...     torch.ones(1).double(), torch.ones(1).double(), rate=0.0, allowance=rule.allowance(1.0)
    ... )
    >>> round(m, 6)  # a displacement of 1 comes to lie at 0.5
    1.0
    """

    drift: float = 0.01

    def __post_init__(self) -> None:
        _positive("Budget: drift", self.drift)

    def multiplier(
        self, ratios: Tensor, squares: Tensor, *, rate: float, allowance: float
    ) -> float:
        """The least that brings the displacement back into its budget."""
        return smallest_multiplier(ratios, squares, allowance)

    def allowance(self, energy: float) -> float:
        """A share of what the remembered weights themselves amount to."""
        return self.drift * energy


RULES: dict[str, type[Ratio | Energy | Tolerance | Ridge | Penalty | Budget]] = {
    rule.__name__: rule for rule in (Ratio, Energy, Tolerance, Ridge, Penalty, Budget)
}


def rule_to_dict(rule: Rule) -> dict[str, Any]:
    """A rule as it is written into files: its name and its numbers."""
    return {"name": type(rule).__name__, **asdict(rule)}  # type: ignore[call-overload]


def rule_from_dict(written: dict[str, Any]) -> Rule:
    """Read what ``rule_to_dict`` wrote.

    >>> rule_from_dict({"name": "Penalti", "strength": 5.0})
    Traceback (most recent call last):
    ValueError: unknown rule 'Penalti' (did you mean 'Penalty'?)
    """
    options = dict(written)
    name = options.pop("name")
    if name not in RULES:
        hint = did_you_mean(name, RULES, otherwise=f"; known: {', '.join(RULES)}")
        raise ValueError(f"unknown rule {name!r}{hint}")
    return RULES[name](**options)
