"""From a block's second moments to its projection: by a rule, or by a function of one's own.

A memory turns the covariance of every block into a projection after each ``remember``. By default
its rule does that. A method with another idea, say a basis that only grows, hands in a
``Projector`` instead, and everything else of the memory stays as it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from nscl.core.covariance.covariance import Covariance
from nscl.core.covariance.sketched_covariance import SketchedCovariance
from nscl.core.model.block import Block
from nscl.core.projection.kronecker import Kronecker, make_kronecker, make_token_kronecker
from nscl.core.projection.low_rank_projector import Mask, Projection, thin_projection
from nscl.core.projection.rules import Proximal, Rule
from nscl.core.projection.sketched.sketched_kronecker import make_sketched_kronecker
from nscl.core.projection.sketched.sketched_spectrum import (
    decompose_sketch,
    sketched_eigenpairs,
    sketched_projection,
)
from nscl.core.projection.spectrum import Spectrum, decompose, eigenpairs
from nscl.errors import ModelMismatchError

Decompose = Callable[
    [Block, Covariance, Rule, Sequence[int] | None], tuple[Spectrum, Tensor]
]  # of some features, if they are given
BlockProjection = Projection | Mask | Kronecker  # how a block's displacement is treated
_Found = TypeVar("_Found", bound=BlockProjection)


class Projector(Protocol):
    """A function that decides how the steps of one block are projected from now on."""

    def __call__(
        self, block: Block, covariance: Covariance, previous: Projection | None
    ) -> tuple[Projection, Spectrum]:
        """Return the projection, and the spectrum that reports show.

        ``covariance`` is of the pass that has just ended, or of all passes if the memory keeps
        them; ``previous`` is the block's projection so far. Embeddings do not come here: a memory
        holds every token that any pass has seen.
        """
        ...


class BlockProjector(Protocol):
    """What a memory calls for each block: a rule or a ``Projector`` with all it needs."""

    def __call__(
        self,
        block: Block,
        covariance: Covariance,
        previous: BlockProjection | None,
        *,
        gradient: Covariance | None,
        dtype: torch.dtype,
    ) -> tuple[BlockProjection, Spectrum]:
        """Return the projection and its spectrum, for a parameter of this ``dtype``."""
        ...


def project_by_rule(rule: Rule, *, frobenius: bool = False) -> BlockProjector:
    """Project every block as a rule says, from its covariance alone."""
    decompose = _Decomposition()

    def project(
        block: Block,
        covariance: Covariance,
        previous: BlockProjection | None,
        *,
        gradient: Covariance | None,
        dtype: torch.dtype,
    ) -> tuple[BlockProjection, Spectrum]:
        if isinstance(rule, Proximal):
            found: BlockProjection
            found, spectrum = factorise(
                block, covariance, gradient, rule, dtype=dtype, decompose=decompose
            )
        else:
            found, spectrum = analyse(
                block, covariance, rule, frobenius=frobenius, dtype=dtype, decompose=decompose
            )
        return decompose.with_one_basis(found), spectrum

    return project


def project_by_function(projector: Projector) -> BlockProjector:
    """Project every matrix as a function says; tokens that were seen stay held."""

    def project(
        block: Block,
        covariance: Covariance,
        previous: BlockProjection | None,
        *,
        gradient: Covariance | None,
        dtype: torch.dtype,
    ) -> tuple[BlockProjection, Spectrum]:
        if block.layout == "tokens":
            mask, spectrum = analyse_tokens(covariance, dtype)
            return (mask & previous if isinstance(previous, Mask) else mask), spectrum
        before = previous if isinstance(previous, Projection) else None
        projection, spectrum = projector(block, covariance, before)
        check_width(block.name, block, projection)
        return projection, spectrum

    return project


def check_width(name: str, block: Block | None, projection: Projection) -> None:
    """A projection must have as many features as its block."""
    width = projection.basis.shape[1]
    if block is None or block.width != width:
        has = "no such block" if block is None else f"{block.width} features there"
        raise ModelMismatchError(
            f"a projection of {width} features was given for '{name}', but the model has {has}"
        )


def analyse(
    block: Block,
    covariance: Covariance,
    rule: Rule,
    *,
    frobenius: bool,
    dtype: torch.dtype,
    decompose: Decompose | None = None,
) -> tuple[Projection | Mask, Spectrum]:
    """Decompose a block's covariance and build its projection in the parameter's precision."""
    if block.layout == "tokens":
        return analyse_tokens(covariance, dtype)
    spectrum, projection = analyse_rows(
        block, covariance, rule, frobenius=frobenius, decompose=decompose
    )
    return projection.to(device=torch.device("cpu"), dtype=_precise(dtype)), spectrum


def analyse_rows(
    block: Block,
    covariance: Covariance,
    rule: Rule,
    *,
    frobenius: bool,
    features: Sequence[int] | None = None,
    decompose: Decompose | None = None,
) -> tuple[Spectrum, Projection]:
    """Spectrum and projection in float64; ``features`` are those that can move, if not all."""
    spectrum, vectors = (decompose or _decomposed)(block, covariance, rule, features)
    if vectors.shape[-1] < vectors.shape[-2]:
        return spectrum, sketched_projection(vectors, spectrum.weights)
    return spectrum, thin_projection(vectors, spectrum.weights, frobenius=frobenius)


def analyse_tokens(covariance: Covariance, dtype: torch.dtype) -> tuple[Mask, Spectrum]:
    """Hold the tokens that were seen and free all others: both are certain, whatever the rule."""
    counts = covariance.sums / covariance.rows
    free = (counts == 0).to(torch.float64)
    spectrum = Spectrum(counts[None], free[None], counts.new_zeros(1, 1))
    return Mask(free.to(dtype)), spectrum


def factorise(
    block: Block,
    covariance: Covariance,
    gradient: Covariance | None,
    rule: Rule,
    *,
    dtype: torch.dtype,
    features: Sequence[int] | None = None,
    decompose: Decompose | None = None,
) -> tuple[Kronecker, Spectrum]:
    """Decompose both factors of a block; ``features`` are those that can move, if not all."""
    outputs = None if gradient is None else _eigenpairs(gradient)
    is_sketched = outputs is not None and outputs[1].shape[-1] < outputs[1].shape[-2]
    tasks = covariance.tasks
    if block.layout == "tokens":
        counts = (covariance.sums / covariance.rows)[None]
        spectrum = Spectrum(counts, rule(counts, tasks=tasks, floor=0.0), counts.new_zeros(1, 1))
        if is_sketched:
            bare = (counts, spectrum.floor, None)
            found: Kronecker = make_sketched_kronecker(bare, outputs, tasks=tasks)
        else:
            found = make_token_kronecker(counts[0], outputs, tasks=tasks)
    else:
        spectrum, vectors = (decompose or _decomposed)(block, covariance, rule, features)
        inputs = (spectrum.eigenvalues, spectrum.floor, vectors)
        is_sketched |= vectors.shape[-1] < vectors.shape[-2]
        make = make_sketched_kronecker if is_sketched else make_kronecker
        found = make(inputs, outputs, tasks=tasks)
    return found.to(device=torch.device("cpu"), dtype=_precise(dtype)), spectrum


def _eigenpairs(covariance: Covariance) -> tuple[Tensor, Tensor]:
    if isinstance(covariance, SketchedCovariance):
        return sketched_eigenpairs(covariance.mean())
    return eigenpairs(covariance.dense(), strict=True)


def _decomposed(
    block: Block, covariance: Covariance, rule: Rule, features: Sequence[int] | None
) -> tuple[Spectrum, Tensor]:
    if isinstance(covariance, SketchedCovariance):
        return decompose_sketch(covariance.mean(features), rule, tasks=covariance.tasks)
    dense = covariance.dense()
    noise = covariance.rounding(dense, block.features)
    if features is not None:
        index = torch.tensor(features, device="cpu")
        dense, noise = dense[:, index][:, :, index], noise[:, index]
    return decompose(dense, rule, noise=noise, tasks=covariance.tasks, strict=True)


class _Decomposition:
    """The last decomposition: layers that were fed the same inputs come one after the other."""

    def __init__(self) -> None:
        self._of: Covariance | None = None
        self._found: tuple[Spectrum, Tensor] | None = None
        self._basis: Tensor | None = None

    def __call__(
        self, block: Block, covariance: Covariance, rule: Rule, features: Sequence[int] | None
    ) -> tuple[Spectrum, Tensor]:
        if self._found is None or self._of is not covariance:
            self._of = self._found = self._basis = None  # room for the next one
            self._found, self._of = _decomposed(block, covariance, rule, features), covariance
        return self._found

    def with_one_basis(self, found: _Found) -> _Found:
        """The same, with the basis of the layer before if that was decomposed alike."""
        name = "basis" if isinstance(found, Projection) else "inputs"
        basis: Tensor | None = getattr(found, name, None)
        known = self._basis
        if basis is None or known is None or known.shape != basis.shape:
            self._basis = basis
            return found
        changes: Any = {name: known}
        return replace(found, **changes) if known.dtype == basis.dtype else found


def _precise(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
