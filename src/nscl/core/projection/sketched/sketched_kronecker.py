"""The proximal step where a factor is a sketch: four blocks instead of one.

With ``C = U diag(c) Uᵀ + c₀(I − UUᵀ)`` and ``G = V diag(g) Vᵀ + g₀(I − VVᵀ)`` a displacement D has
four parts, and each is divided by its own ``1 + m·r``:

    known outputs, known inputs      E = VᵀDU     r = g_i·c_j
    known outputs, other inputs      VᵀD(I − UUᵀ)     g_i·c₀
    other outputs, known inputs      (I − VVᵀ)DU      g₀·c_j
    other outputs, other inputs                       g₀·c₀

With ``f = 1/(1 + m·r)`` of each part the step is

    D ← f₀₀·D + V[(f_i₀ − f₀₀)·VᵀD] + [(f₀_j − f₀₀)·DU + V((f_ij − f_i₀ − f₀_j + f₀₀)·E)]Uᵀ.

A full factor is the special case in which there are no others. Where all outputs count alike there
is no V, and g₀ is 1. Tokens are directions of their own: U is the identity and is not written out.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from nscl.core.projection.kronecker import LARGEST, Kronecker, Multiplier, mean_of


class _Parts(NamedTuple):
    """What a displacement is seen as: D, VᵀD, DU and VᵀDU."""

    whole: Tensor
    outputs: Tensor
    inputs: Tensor
    both: Tensor


@dataclass(frozen=True)
class SketchedKronecker(Kronecker):
    """Two factors of which at least one is known in some directions only."""

    rest: Tensor = field(kw_only=True)  # [groups]: c₀·T/c̄; 0 where all inputs are known
    rest_gain: Tensor = field(kw_only=True)  # [groups]: g₀/ḡ

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What stays resident between optimizer steps."""
        return (*super().tensors, self.rest, self.rest_gain)

    def to(self, *, device: torch.device, dtype: torch.dtype) -> "SketchedKronecker":
        """The same factors where, and as precise as, the parameters are."""
        moved = super().to(device=device, dtype=dtype)
        rest, gain = self.rest.to(device, dtype), self.rest_gain.to(device, dtype)
        return SketchedKronecker(**vars(moved), rest=rest, rest_gain=gain)

    def scaled(self, factor: float) -> "SketchedKronecker":
        """The same with all input energies times a factor."""
        return replace(self, energies=self.energies * factor, rest=self.rest * factor)

    def effective_free(self, out: int, width: int) -> float:
        """``Σ 1/(1 + r)`` over all ``out × width`` dimensions of every group."""
        others = out - self._gains.shape[-1], width - self.energies.shape[-1]
        counts = (1, others[1], others[0], others[0] * others[1])
        return sum(
            count * float((1.0 / (1.0 + r.double())).sum())
            for r, count in zip(self._blocks(), counts, strict=True)
        )

    def cost(self, displacement: Tensor) -> float:
        """``Σ r·‖part‖²`` over the four parts."""
        ratios, squares = self._flat(self._parts(displacement))
        return float((ratios * squares).sum(dtype=torch.float64))

    def shrink_(
        self, displacement: Tensor, multiplier: Multiplier, *, rate: float, allowance: float
    ) -> None:
        """One proximal step in place on ``[groups, out, width]``."""
        parts = self._parts(displacement)
        m = min(LARGEST, multiplier(*self._flat(parts), rate=rate, allowance=allowance))
        if m == 0.0:
            return
        both, row, column, corner = (1.0 / (1.0 + m * r) for r in self._blocks())
        change = parts.inputs * (column - corner)
        if self.outputs is not None:
            change += self.outputs @ (parts.both * (both - row - column + corner))
        displacement.mul_(corner)
        if self.outputs is not None:
            displacement += self.outputs @ (parts.outputs * (row - corner))
        displacement += change if self.inputs is None else change @ self.inputs.mT

    @property
    def _gains(self) -> Tensor:
        """G of the known outputs; none are where all count alike."""
        return self.energies[:, :0] if self.gains is None else self.gains

    def _blocks(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Ratios of the four parts, ``[groups, known outputs or 1, known inputs or 1]``."""
        gains, energies = self._gains[..., None], self.energies[:, None]
        gain, rest = self.rest_gain[:, None, None], self.rest[:, None, None]
        return gains * energies, gains * rest, gain * energies, gain * rest

    def _parts(self, D: Tensor) -> _Parts:
        outputs = D[:, :0] if self.outputs is None else self.outputs.mT @ D
        if self.inputs is None:
            return _Parts(D, outputs, D, outputs)
        return _Parts(D, outputs, D @ self.inputs, outputs @ self.inputs)

    def _flat(self, parts: _Parts) -> tuple[Tensor, Tensor]:
        """Ratios and squares of all parts in a row; directions with one ratio are added up.

        The square of an unknown part is that of everything less what is known.
        """
        whole = parts.whole.square().sum((1, 2), keepdim=True)
        rows, known_rows = (t.square().sum(2, keepdim=True) for t in (parts.outputs, parts.both))
        columns, known_columns = (
            t.square().sum(1, keepdim=True) for t in (parts.inputs, parts.both)
        )
        row, column = rows - known_rows, columns - known_columns
        corner = whole - rows.sum(1, keepdim=True) - column.sum(2, keepdim=True)
        squares = (parts.both.square(), row, column, corner)
        ratios = [r.expand_as(s).flatten() for r, s in zip(self._blocks(), squares, strict=True)]
        return torch.cat(ratios), torch.cat([s.flatten() for s in squares]).clamp_min(0.0)


def make_sketched_kronecker(
    inputs: tuple[Tensor, Tensor, Tensor | None],
    outputs: tuple[Tensor, Tensor] | None,
    *,
    tasks: int,
) -> SketchedKronecker:
    """As ``make_kronecker``, from vectors of the last (the largest) eigenvalues only.

    ``inputs`` without vectors are tokens, each a direction of its own.
    """
    values, floor, vectors = inputs
    living = values > floor
    relative = tasks * values.where(living, 0.0) / mean_of(values)
    known = values.shape[-1] if vectors is None else vectors.shape[-1]
    columns = known if vectors is None else min(known, int(living.sum(-1).max()))
    start = values.shape[-1] - columns
    V, gains, gain = _sketched_outputs(outputs, like=values[:, 0])
    return SketchedKronecker(
        None if vectors is None else vectors[..., known - columns :].contiguous(),
        relative[:, start:],
        V,
        gains,
        rest=relative[:, 0] if start else torch.zeros_like(relative[:, 0]),
        rest_gain=gain,
    )


def _sketched_outputs(
    outputs: tuple[Tensor, Tensor] | None, *, like: Tensor
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Vectors and gains of the known outputs, and the gain of all others."""
    if outputs is None:
        return None, None, torch.ones_like(like)
    values, V = outputs
    gains, others = values / mean_of(values), values.shape[-1] - V.shape[-1]
    return V, gains[:, others:], gains[:, 0] if others else torch.zeros_like(gains[:, 0])
