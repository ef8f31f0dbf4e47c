"""The Kronecker-factored proximal step: how a displacement is shrunk by what old data use.

A layer's displacement D ``[groups, out, width]`` (biases are columns) costs old outputs
``tr(G D C Dᵀ)``, with C the second moments of the layer's inputs and G those of the loss's gradient
at its outputs. In the eigenbases ``C = U diag(c) Uᵀ`` and ``G = V diag(g) Vᵀ`` the cost is
``Σ r_ij E_ij²`` with ``E = Vᵀ D U`` and ``r_ij = T·g_i·c_j / (ḡ·c̄)``, and the step

    D ← D − V [E ⊙ (1 − 1/(1 + m·r))] Uᵀ

is exactly ``argmin_X ½‖X − D‖² + (m/2)·Σ r_ij (VᵀXU)²_ij``. Input directions at or below the noise
floor have r = 0: they are left out of U and never touched.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

LARGEST = 1e30  # a multiplier beyond it is infinite in float32 and removes nothing more


class Multiplier(Protocol):
    """How strongly a block is shrunk: given ratios r, squares E², its rate and its allowance."""

    def __call__(self, ratios: Tensor, squares: Tensor, *, rate: float, allowance: float) -> float:
        """M of the step ``E ← E / (1 + m·r)``."""
        ...


@dataclass(frozen=True)
class Kronecker:
    """Eigenbases and relative eigenvalues of one block's two factors."""

    inputs: Tensor | None  # [groups, width, columns]; None: every feature is a direction (tokens)
    energies: Tensor  # [groups, columns]: T·c_j / c̄
    outputs: Tensor | None  # [groups, out, out]; None: all outputs count alike
    gains: Tensor | None  # [groups, out]: g_i / ḡ

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What stays resident between optimizer steps."""
        kept = (self.inputs, self.energies, self.outputs, self.gains)
        return tuple(tensor for tensor in kept if tensor is not None)

    @property
    def nbytes(self) -> int:
        """Bytes that stay resident between optimizer steps."""
        return sum(tensor.nbytes for tensor in self.tensors)

    def to(self, *, device: torch.device, dtype: torch.dtype) -> "Kronecker":
        """The same factors where, and as precise as, the parameters are."""
        moved = [
            None if value is None else value.to(device, dtype)
            for value in (self.inputs, self.outputs, self.gains)
        ]
        inputs, outputs, gains = moved
        return Kronecker(inputs, self.energies.to(device, dtype), outputs, gains)

    def scaled(self, factor: float) -> "Kronecker":
        """The same with all input energies times a factor."""
        return replace(self, energies=self.energies * factor)

    @property
    def ratios(self) -> Tensor:
        """R ``[groups, out, columns]``; one row for all outputs where they count alike."""
        rows = self.energies[:, None]
        return rows if self.gains is None else self.gains[..., None] * rows

    def effective_free(self, out: int, width: int) -> float:
        """``Σ 1/(1 + r)`` over all ``out × width`` dimensions of every group."""
        r = self.ratios.double()
        held = (r / (1.0 + r)).sum() * (1 if self.gains is not None else out)
        return float(self.energies.shape[0] * out * width - held)

    def coordinates(self, displacement: Tensor) -> Tensor:
        """``E = Vᵀ D U``."""
        turned = displacement if self.outputs is None else self.outputs.mT @ displacement
        return turned if self.inputs is None else turned @ self.inputs

    def cost(self, displacement: Tensor) -> float:
        """``Σ r_ij E_ij²``."""
        squares = self.coordinates(displacement).square()
        return float((self.ratios * squares).sum(dtype=torch.float64))

    def shrink_(
        self, displacement: Tensor, multiplier: Multiplier, *, rate: float, allowance: float
    ) -> None:
        """One proximal step in place on ``[groups, out, width]``."""
        found, ratios = self.coordinates(displacement), self.ratios
        m = multiplier(ratios, found.square(), rate=rate, allowance=allowance)
        if m == 0.0:
            return
        removed = found.mul_(1.0 - 1.0 / (1.0 + min(m, LARGEST) * ratios))
        if self.inputs is not None:
            removed = removed @ self.inputs.mT
        displacement -= removed if self.outputs is None else self.outputs @ removed

    def rows(self, start: int, stop: int) -> "Kronecker":
        """The part for some tokens: each is a direction of its own."""
        return replace(self, energies=self.energies[:, start:stop])


def smallest_multiplier(ratios: Tensor, squares: Tensor, allowance: float) -> float:
    """The least m ≥ 0 with ``Σ r E²/(1 + m·r)² ≤ allowance``: projection onto an ellipsoid.

    Newton's method on ``f(m)^(−½)``, which is nearly a straight line, as for trust regions.

    >>> r, e = torch.ones(1, 1, 2).double(), torch.full((1, 1, 2), 2.0).double()
    >>> round(smallest_multiplier(r, e, 1.0), 6)
    1.0
    """
    energy = ratios * squares
    precise = squares.dtype == torch.float64
    target = allowance * (1.0 - (1e-12 if precise else 1e-5))
    if float(energy.sum(dtype=torch.float64)) <= allowance:
        return 0.0
    if target <= 0.0:
        return LARGEST
    m = 0.0
    for _ in range(100):
        kept = 1.0 / (1.0 + m * ratios)
        left = energy * kept * kept
        f = float(left.sum(dtype=torch.float64))
        if f <= target * (1.0 + (1e-11 if precise else 5e-6)):
            break
        slope = float((left * kept * ratios).sum(dtype=torch.float64))  # −f′/2
        m = min(LARGEST, m + f**1.5 * (target**-0.5 - f**-0.5) / slope)
    return m


def make_kronecker(
    inputs: tuple[Tensor, Tensor, Tensor],
    outputs: tuple[Tensor, Tensor] | None,
    *,
    tasks: int,
) -> Kronecker:
    """From eigenvalues, noise floor and eigenvectors of C, and eigenvalues and vectors of G.

    Groups of one layer share their scale: c̄ and ḡ are means over all of them.
    """
    values, floor, vectors = inputs
    living = values > floor
    columns = int(living.sum(-1).max())
    relative = tasks * values.where(living, 0.0) / mean_of(values)
    gains, V = (None, None) if outputs is None else (outputs[0] / mean_of(outputs[0]), outputs[1])
    # Ascending: the last columns are the living ones; a group with fewer has zeros before them.
    start = values.shape[-1] - columns
    return Kronecker(vectors[..., start:].contiguous(), relative[:, start:], V, gains)


def make_token_kronecker(
    counts: Tensor, outputs: tuple[Tensor, Tensor] | None, *, tasks: int
) -> Kronecker:
    """For an embedding seen as ``[1, width, tokens]``: C is diagonal, how often each was seen."""
    gains, V = (None, None) if outputs is None else (outputs[0] / mean_of(outputs[0]), outputs[1])
    return Kronecker(None, tasks * (counts / mean_of(counts))[None], V, gains)


def mean_of(values: Tensor) -> Tensor:
    """The mean eigenvalue, which others are divided by."""
    return values.mean().clamp_min(torch.finfo(values.dtype).tiny)


@dataclass(frozen=True)
class Diagonal:
    """The same step where both factors are one diagonal: norm layers and plain parameters."""

    ratios: Tensor  # as the parameter: T·F / F̄

    @property
    def nbytes(self) -> int:
        """Bytes that stay resident between optimizer steps."""
        return self.ratios.nbytes

    def cost(self, displacement: Tensor) -> float:
        """``Σ r_i D_i²``."""
        return float((self.ratios * displacement.square()).sum(dtype=torch.float64))

    def shrink_(
        self, displacement: Tensor, multiplier: Multiplier, *, rate: float, allowance: float
    ) -> None:
        """One proximal step in place."""
        m = multiplier(self.ratios, displacement.square(), rate=rate, allowance=allowance)
        if m != 0.0:
            displacement -= displacement * (1.0 - 1.0 / (1.0 + min(m, LARGEST) * self.ratios))


def make_diagonal(fisher: Tensor, *, tasks: int) -> Diagonal:
    """From ΣF over the tasks: ``T · (ΣF / T) / mean(ΣF / T)``."""
    return Diagonal(tasks * fisher / mean_of(fisher))
