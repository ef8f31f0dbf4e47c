"""Recursive least squares: a projector that follows every batch of rows.

``P = (I + Σ_i x_i x_iᵀ / α_i)⁻¹``, brought up to date without an inverse. All rows of a batch are
taken at once (Woodbury), which equals one after the other exactly. In float64: after 20,000 float32
updates P has negative eigenvalues.

Specification: docs/methods.md, "OWM".
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from nscl.core.capture.forward_hooks import observing
from nscl.core.covariance.observations import InputRows, Observation, TokenIds, averaged
from nscl.core.distributed.collectives import sum_over_ranks
from nscl.core.model.block import Block
from nscl.core.model.inventory import take_inventory
from nscl.core.projection.low_rank_projector import Projection
from nscl.core.projection.spectrum import Spectrum
from nscl.errors import UnsupportedError


def recursion(P: Tensor, rows: Tensor, alpha: float) -> Tensor:
    """``P − P Xᵀ (αI + X P Xᵀ)⁻¹ X P`` for ``P [groups, d, d]`` and rows ``X [groups, n, d]``.

    >>> recursion(torch.eye(2)[None], torch.tensor([[[1.0, 0.0]]]), 1.0)
    tensor([[[0.5000, 0.0000],
             [0.0000, 1.0000]]])
    """
    if rows.shape[1] > rows.shape[2]:
        # Only XᵀX matters, and the triangle R of X = QR has the same with d rows.
        rows = torch.linalg.qr(rows, mode="r").R
    gains = rows @ P
    inner = gains @ rows.mT
    inner.diagonal(dim1=-2, dim2=-1).add_(alpha)
    half = torch.linalg.solve_triangular(torch.linalg.cholesky(inner), gains, upper=False)
    updated: Tensor = P - half.mT @ half
    return (updated + updated.mT) / 2


@dataclass(frozen=True)
class Dense(Projection):
    """``D ↦ D P`` with P itself, ``[groups, d, d]``; casts are made when it is applied."""

    def to(self, *, device: torch.device, dtype: torch.dtype) -> "Dense":
        """Stay the same object: it casts when it is applied."""
        return self

    def groups(self, start: int, stop: int) -> "Dense":
        """Some of the groups, as a view."""
        return Dense(self.basis[start:stop], self.removes, self.scale)

    def apply_(self, weight: Tensor, biases: Any = ()) -> None:
        """Project ``weight [groups, out, features]`` and its ``biases [groups, out]`` in place."""
        P, features = self.basis.to(weight.device, weight.dtype), weight.shape[-1]
        stacked = torch.cat([weight, *(bias[..., None] for bias in biases)], -1) @ P
        weight.copy_(stacked[..., :features])
        for bias, column in zip(biases, stacked[..., features:].unbind(-1), strict=True):
            bias.copy_(column)


@dataclass(frozen=True)
class Following(Dense):
    """A P that changes at every step: who holds it projects by P as it is at that time."""

    start: Tensor = field(kw_only=True)  # P when it was last marked, at the end of a task

    @property
    def at_remember(self) -> Dense:
        """P as it was when the task began."""
        return Dense(self.start, self.removes)

    def mark(self) -> None:
        """A task begins with P as it is now."""
        self.start.copy_(self.basis)


class Recursion:
    """One projector per block, and the mean inputs of the batch at hand."""

    def __init__(self, model: nn.Module, *, exclude: tuple[str, ...] = ()) -> None:
        self._found = take_inventory(model, exclude=exclude)
        self._device = next(model.parameters()).device
        if self._device.type == "mps":  # Apple's GPUs have no float64
            self._device = torch.device("cpu")
        self._rows: dict[str, list[Tensor]] = {}
        self.projectors = {name: self._fresh(block) for name, block in self._found.blocks.items()}

    def _fresh(self, block: Block) -> Following:
        if block.layout == "tokens":
            raise UnsupportedError(
                f"owm mode=online has no recursion for the embedding '{block.name}': use "
                "mode=task_end"
            )
        eye = torch.eye(block.width, dtype=torch.float64, device=self._device)
        P = eye.repeat(block.groups, 1, 1)
        return Following(P, removes=False, start=P.clone())

    def watching(self) -> AbstractContextManager[Any]:
        """Note the mean input of every layer that runs inside of the block."""
        self._rows = {}
        return observing(self._found, self._note)

    def _note(self, block: Block, seen: Observation, constant: int | None) -> None:
        rows = mean_rows(seen, width=block.width, constant=constant)
        self._rows.setdefault(block.name, []).append(rows.to(self._device))

    def update(self, samples: int, alpha: Callable[[Block], float]) -> None:
        """Take the batch that was watched into account; on several ranks, the whole batch."""
        share = torch.tensor([float(samples)], dtype=torch.float64)
        share /= sum_over_ranks(share)
        for name, rows in self._rows.items():
            P = self.projectors[name].basis
            mean = sum_over_ranks(torch.cat(rows, 1) * share.to(P.device)).to(P.device)
            P.copy_(recursion(P, mean, alpha(self._found.blocks[name])))
        self._rows = {}

    def free(self) -> float:
        """The share of directions that are free: the mean of P's eigenvalues."""
        P = [projector.basis for projector in self.projectors.values()]
        diagonals = [p.diagonal(dim1=-2, dim2=-1).reshape(-1).cpu() for p in P]
        return float(torch.cat(diagonals).mean())

    def mark(self) -> None:
        """Keep the projectors as they are now: a task begins."""
        for projector in self.projectors.values():
            projector.mark()

    def spectrum(self, name: str) -> Spectrum:
        """Weights are P's eigenvalues w; the energy, in units of alpha, is ``1/w − 1``."""
        tiny = torch.finfo(torch.float64).eps
        P = self.projectors[name].basis
        weights = torch.linalg.eigvalsh(P).clamp(tiny, 1.0).flip(-1).cpu()
        return Spectrum(1.0 / weights - 1.0, weights, torch.zeros_like(weights[:, :1]))

    def load(self, projectors: Mapping[str, Tensor]) -> None:
        """Take ``P`` of every block."""
        for name, P in projectors.items():
            self.projectors[name].basis.copy_(P)


def mean_rows(seen: Observation, *, width: int, constant: int | None) -> Tensor:
    """A call's input averaged over the batch, ``[groups, positions, width]``, float64, with ones.

    A map keeps its positions: every patch of the mean map is a row.
    """
    mean = averaged(seen)
    if isinstance(mean, TokenIds):
        raise TypeError("tokens have no mean")
    values = mean.values if isinstance(mean, InputRows) else torch.cat(list(mean.unfolded()), 1)
    values = values.double()
    rows = values.new_zeros(*values.shape[:2], width)
    rows[..., : values.shape[-1]] = values
    if constant is not None:
        rows[..., values.shape[-1] + constant] = 1.0
    return rows
