"""Whether a loaded state can be what ``remember`` has made: shapes, finite numbers, signs.

A file may have been damaged or edited. What does not fit is an error before anything is taken over.
Everything here costs a look at each number. That a covariance has no negative eigenvalue is seen
where it is decomposed anyway (``spectrum.py``); here its diagonal is enough. Packed matrices have
one number for each pair of features, so they are always symmetric.
"""

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor

from nscl.core.checks.sketches import check_same_rank
from nscl.core.covariance.covariance import Covariance
from nscl.core.covariance.packed import packed_diagonal, packed_shape
from nscl.core.covariance.sketched_covariance import SketchedCovariance
from nscl.core.model.block import Block, outputs_per_group
from nscl.core.model.inventory import Inventory
from nscl.core.projection.low_rank_projector import Mask
from nscl.core.projection.spectrum import load_another
from nscl.core.report import listed
from nscl.core.state import State, check_model
from nscl.errors import MemoryFileError, NsclWarning


def check_loaded(state: State, found: Inventory, rank: int | None) -> None:
    """Refuse a state that does not fit the model, or that no ``remember`` can have left."""
    check_model(state, found)
    _check_values_of(state)
    check_same_rank(state, rank)
    for message in describe_unfit_for_recall(state, found.parameters):
        warnings.warn(message, NsclWarning, stacklevel=4)


def _check_values_of(state: State) -> None:
    # What only recall needs may be anything: attention masks are buffers of minus infinity.
    # Layers that no pass has run may have a projection by hand, but no spectrum and no weights.
    for name in (*state.covariances, *state.spectra):
        _check_reference(state.blocks[name], state.reference)
    for name in (*state.anchors, *sorted(state.held)):
        if name not in state.reference:
            raise _lacks(name, name.rpartition(".")[0] or name)
    for name, covariance in state.covariances.items():
        block = state.blocks[name]
        _check_covariance("covariance", block, covariance, block.width)
    for name, gradient in state.gradients.items():
        block = state.blocks[name]
        out = outputs_per_group(block, state.reference[block.weight].shape)
        _check_covariance("gradient", block, gradient, out)
    _check_anchors(state)
    _check_statistics(state)
    _check_projections(state)


def describe_unfit_for_recall(state: State, now: Mapping[str, Tensor]) -> Iterator[str]:
    """The warning that weights which only ``recall`` needs have another shape by now."""
    unlike = [n for n, t in state.rest.items() if n in now and t.shape != now[n].shape]
    if unlike:
        yield (
            f"recall() and distillation will fail: {listed(unlike)} had another shape when this "
            "memory was made; nothing else needs them"
        )


def _check_reference(block: Block, reference: Mapping[str, Tensor]) -> None:
    for name in block.parameters:
        if name not in reference:
            raise _lacks(name, block.name, block)
        if not torch.isfinite(reference[name]).all():
            raise _damaged(f"weights '{name}' of layer '{block.name}'", NOT_FINITE, block)


def _check_covariance(what: str, block: Block, found: Covariance, width: int) -> None:
    title, shape = f"{what} of layer '{block.name}'", tuple(found.sums.shape)
    if isinstance(found, SketchedCovariance):
        _check_sketch(title, block, found)
        rows = shape[1] if len(shape) == 3 and shape[1] <= found.rank else found.rank
        expected: tuple[int, ...] = (block.groups, rows, width)
    else:
        counted = what == "covariance" and block.layout == "tokens"
        expected = (width,) if counted else packed_shape(block.groups, width)
    if shape != expected:
        raise _damaged(title, f"has shape {shape}, not {expected}", block)
    for key, least in (("rows", 1), ("tasks", 0), ("noise", 0)):
        _check_number(title, key, getattr(found, key), least, block)
    _check_values(title, found.sums, block, squares=_diagonal(found))


def _check_sketch(title: str, block: Block, found: SketchedCovariance) -> None:
    _check_number(title, "rank", found.rank, 1, block)
    for key, values in (("lost", found.lost), ("bound", found.bound)):
        fits = values.shape == (block.groups,) and bool((values >= 0).all())
        if not fits or not torch.isfinite(values).all():
            raise _damaged(title, f"cannot have {key} = {values.tolist()}", block)


def _diagonal(found: Covariance) -> Tensor | None:
    """Sums of squares; a sketch has rows, which may have any sign."""
    if isinstance(found, SketchedCovariance):
        return None
    return found.sums if found.is_diagonal else packed_diagonal(found.sums)


def _check_anchors(state: State) -> None:
    for name, anchor in state.anchors.items():
        shape = tuple(state.reference[name].shape)
        for what, values in (("fisher", anchor.fisher), ("pull", anchor.pull)):
            title = f"{what} of '{name}'"
            if tuple(values.shape) != shape:
                raise _damaged(title, f"has shape {tuple(values.shape)}, not {shape}")
            _check_values(title, values, squares=values if what == "fisher" else None)


def _check_statistics(state: State) -> None:
    for name, kept in state.statistics.items():
        for key, values in kept.items():
            squares = values if key == "running_var" else None
            _check_values(f"{key} of layer '{name}'", values, squares=squares)


def _check_projections(state: State) -> None:
    """Those that came with the state, from a projector; all others are computed anew."""
    for name, projection in state.projections.items():
        kept = (projection.free,) if isinstance(projection, Mask) else projection.tensors
        _check_all(f"projection of layer '{name}'", kept)
    for name, spectrum in state.spectra.items():
        _check_all(f"spectrum of layer '{name}'", (spectrum.eigenvalues, spectrum.weights))


def _check_all(title: str, tensors: Iterable[Tensor]) -> None:
    for tensor in tensors:
        _check_values(title, tensor)


def _check_values(
    title: str, values: Tensor, block: Block | None = None, *, squares: Tensor | None = None
) -> None:
    if not torch.isfinite(values).all():
        raise _damaged(title, NOT_FINITE, block)
    if squares is not None and (squares < 0).any():
        raise _damaged(title, "has negative values where squares are added up", block)


def _check_number(title: str, key: str, value: object, least: int, block: Block) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and math.isfinite(value) and value >= least):  # type: ignore[arg-type,operator]
        raise _damaged(title, f"cannot have {key} = {value!r}", block)


NOT_FINITE = "has values that are not finite"


def _damaged(title: str, problem: str, block: Block | None = None) -> MemoryFileError:
    return MemoryFileError(
        f"the {title} {problem}: this memory was damaged or edited after it was saved; "
        f"{load_another(block)}"
    )


def _lacks(name: str, layer: str, block: Block | None = None) -> MemoryFileError:
    return MemoryFileError(
        f"this memory is incomplete: it has no weights '{name}' of layer '{layer}'; "
        f"{load_another(block)}"
    )
