"""A sum of quadratic penalties on one parameter is one quadratic penalty.

Whatever the number of tasks, ``½ Σ_t Σ_i k_ti (w_i − c_ti)²`` is one parabola per number: its
curvature is ``Σk``, its centre ``Σk·c / Σk``, and a height is left over. The centre is kept, not
``Σk·c``: the difference of two large products would lose in float32 what the difference of two
weights keeps. Norm layers are held by it, and so are all weights under EWC, SI and MAS.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Parabola:
    """``½ Σ_i k_i (w_i − c_i)²`` of one parameter.

    >>> bowl = Parabola(torch.tensor([1.0]), torch.tensor([0.0]))
    >>> other = Parabola(torch.tensor([3.0]), torch.tensor([2.0]))
    >>> bowl.plus(other).centre, bowl.plus(other).value(torch.tensor([1.5])), bowl.height(other)
    (tensor([1.5000]), 0.0, 1.5)
    """

    curvature: Tensor
    centre: Tensor

    def plus(self, other: "Parabola") -> "Parabola":
        """The sum of both, but for ``height``."""
        total, share = self._shared(other)
        return Parabola(total, self.centre + share * (other.centre - self.centre))

    def height(self, other: "Parabola") -> float:
        """How high the sum of both lies above 0 at its lowest point."""
        _, share = self._shared(other)
        gap = other.centre - self.centre
        return 0.5 * float((self.curvature * share * gap.square()).sum())

    def _shared(self, other: "Parabola") -> tuple[Tensor, Tensor]:
        """The curvature of the sum, and the other's share of it."""
        total = self.curvature + other.curvature
        share = torch.where(total > 0, other.curvature / total, torch.zeros_like(total))
        return total, share

    def gradient(self, weight: Tensor, *, rate: Tensor | float = 0.0) -> Tensor:
        """``k (w − c)`` in the weight's dtype; no further than a gradient step at ``rate`` can go.

        A step of rate η overshoots the lowest point once the curvature exceeds 1/η, and diverges
        beyond 2/η. There the curvature is taken as 1/η, the strongest pull it can carry out.

        >>> bowl = Parabola(torch.tensor([200.0]), torch.zeros(1))
        >>> bowl.gradient(torch.tensor([0.5]))
        tensor([100.])
        >>> bowl.gradient(torch.tensor([0.5]), rate=0.1)  # all the way: 0.1 · 5 = 0.5
        tensor([5.])
        """
        exact = self.curvature * (weight.to(self.centre.dtype) - self.centre)
        if not (isinstance(rate, float) and rate == 0.0):
            exact = exact / (rate * self.curvature).clamp_min(1.0)
        return exact.to(weight.dtype)

    def value(self, weight: Tensor) -> float:
        """How high it is at ``weight``."""
        gap = weight.detach() - self.centre
        return 0.5 * float((self.curvature * gap.square()).sum())

    def rows(self, start: int, stop: int) -> "Parabola":
        """The part that belongs to some rows of a sharded parameter; a single number has none."""
        if self.curvature.ndim == 0:
            return self
        return Parabola(self.curvature[start:stop], self.centre[start:stop])

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> "Parabola":
        """The same elsewhere, or as precise as ``dtype``."""
        return Parabola(self.curvature.to(device, dtype), self.centre.to(device, dtype))

    @property
    def nbytes(self) -> int:
        """Bytes of both tensors."""
        return self.curvature.nbytes + self.centre.nbytes
