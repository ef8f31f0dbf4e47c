"""Where the masks of a batch come from: its keys, a function, or the labels of a decoder."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from nscl.core.capture.batch import describe, tensors_in
from nscl.core.padding.padding import Padding, encoder_of
from nscl.core.padding.real_rows import has_batch, real_rows
from nscl.errors import FeatureError

#: The key of the mask in a batch, or a function from the batch to the mask (None: no padding).
Mask = str | Callable[[Any], Tensor | None]

IGNORED = -100  # the label that PyTorch's cross entropy leaves out


def check_mask(mask: Any) -> None:
    """Refuse an option that is neither a key nor a function."""
    if not (mask is None or isinstance(mask, str) or callable(mask)):
        raise TypeError(
            "mask must be the name of a key or a function from a batch to a tensor, "
            f"not {type(mask).__name__}"
        )


def padding_of(batch: Any, mask: Mask | None, model: nn.Module, number: int) -> Padding | None:
    """The padding of a batch, or None where it has no mask."""
    given = [_given(batch, mask, number), _of_decoder(batch, model)]
    first, second = (None if m is None else _two_dimensional(m, batch, number) for m in given)
    found = [m for m in (first, second) if m is not None]
    for one in found:
        _check_axes(one, model, number)
    if first is not None and second is not None and encoder_of(model) is None:
        _check_apart(first, second, number)
    fits = _fits(found, given, batch)
    samples = (len(m) for m in given if m is not None)
    return Padding(first, second, samples=next(samples), fits=fits) if found else None


def _given(batch: Any, mask: Mask | None, number: int) -> Tensor | None:
    if mask is not None and not isinstance(mask, str):
        return _tensor(mask(batch), number)
    keys = batch if isinstance(batch, Mapping) else {}
    if mask is not None and mask not in keys:
        raise FeatureError(
            f"mask={mask!r}: batch {number} ({describe(batch)}) has no such key; give the name of "
            "a key or mask=lambda batch: ..."
        )
    return _tensor(keys.get(mask or "attention_mask"), number)


def _tensor(mask: Any, number: int) -> Tensor | None:
    if mask is None or isinstance(mask, Tensor):
        return mask
    raise FeatureError(
        f"the mask of batch {number} is a {type(mask).__name__}: it must be a tensor "
        "[batch, positions], 1 where a position is real; give mask=lambda batch: ..."
    )


def _of_decoder(batch: Any, model: nn.Module) -> Tensor | None:
    """The second mask of a model that writes a sequence: its own, or what the labels say."""
    if not isinstance(batch, Mapping):
        return None
    mask, labels = batch.get("decoder_attention_mask"), batch.get("labels")
    if isinstance(mask, Tensor):
        return mask
    writes = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    if not (writes and isinstance(labels, Tensor) and labels.ndim == 2):
        return None
    # Positions that no later label depends on: a decoder looks back only.
    return (labels != IGNORED).int().flip(1).cummax(1).values.flip(1)


def _two_dimensional(mask: Tensor, batch: Any, number: int) -> Tensor:
    if mask.ndim not in (2, 3):
        others = [tuple(t.shape) for t in tensors_in(batch) if t.ndim and t is not mask]
        raise FeatureError(
            f"the mask of batch {number} has the shape {tuple(mask.shape)}, where the batch begins "
            f"with {others[0] if others else describe(batch)}: it must be [batch, positions]; "
            "give mask=lambda batch: ..."
        )
    real = mask.detach().flatten(0, -2) != 0  # several choices per sample are sequences each
    numbers = mask.is_floating_point() and not bool(((mask == 0) | (mask == 1)).all())
    if numbers or bool((mask < 0).any()) or not bool(real.any()):
        raise FeatureError(
            f"the mask of batch {number} marks no position as real, or has other values than 0 "
            "and 1: 1 means real, 0 padding; give mask=lambda batch: ..."
        )
    return real


def _check_axes(mask: Tensor, model: nn.Module, number: int) -> None:
    """With as many positions as samples, shapes do not show which axis is which."""
    if mask.shape[0] == mask.shape[1] > 1 and not bool(mask.all()):
        for name, module in model.named_modules():
            if getattr(module, "batch_first", True) is False:
                raise FeatureError(
                    f"batch {number} has as many positions as samples ({mask.shape[0]}) and "
                    f"'{name}' has batch_first=False, so the axis of positions is unknown: use "
                    "another batch size"
                )


def _check_apart(first: Tensor, second: Tensor, number: int) -> None:
    if first.shape == second.shape and not bool((first == second).all()):
        raise FeatureError(
            f"batch {number} has two masks of the shape {tuple(first.shape)}, and the model has no "
            "part named 'encoder' to which the first belongs: pad the two to different lengths"
        )


def _fits(masks: list[Tensor], given: list[Tensor | None], batch: Any) -> bool:
    """Whether anything in the batch has a mask's shape: a model may have no layer that does."""
    others = [t for t in tensors_in(batch) if not any(t is mask for mask in given)]
    return any(
        t.shape == mask.shape
        or (has_batch(mask, t.shape[:-1]) and real_rows(mask, t.shape[:-1]) is not None)
        for t in others
        for mask in masks
    )
