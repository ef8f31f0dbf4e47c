"""From a mask ``[batch, positions]`` to the rows of one tensor, by the tensor's shape alone.

Layers flatten what they are given to rows. Which rows are real is read off the shape before that:
the dimensions of ``[batch, positions, features]`` without the features.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from nscl.core.covariance.convolution.unfold import Geometry


def real_rows(mask: Tensor, shape: Sequence[int], ids: Tensor | None = None) -> Tensor | None:
    """Which rows of a tensor ``[*shape, features]`` are real, or None: the shape is not the mask's.

    ``[batch, positions]`` is matched with further dimensions after it, with heads between the two,
    flattened to one dimension, or with positions first. Rows without a batch (embedded positions)
    are real if they are in any sample. One row per sample is never padding. Where batch and
    positions are equally many, the batch comes first, unless the ``ids`` of an embedding decide.

    >>> mask = torch.tensor([[1, 1, 0], [1, 0, 0]]).bool()
    >>> real_rows(mask, (2, 3))
    tensor([ True,  True, False,  True, False, False])
    >>> real_rows(mask, (3,))  # three positions
    tensor([ True,  True, False])
    >>> real_rows(mask, (2,))  # two pooled samples
    """
    batch, positions = mask.shape
    shape = tuple(shape)
    if batch == positions and ids is not None and _is_of_positions(ids):
        return _in_any_sample(mask, shape)
    if shape == (batch,):
        return None
    if shape[:3] == (batch, positions, positions):
        return _spread(mask[:, :, None] & mask[:, None, :], shape)
    if shape[:2] == (batch, positions):
        return _spread(mask, shape)
    if shape[:2] == (positions, batch):
        return _spread(mask.T, shape)
    if shape[:1] + shape[2:3] == (batch, positions):
        return _spread(mask[:, None].expand(shape[:3]), shape)
    if shape == (batch * positions,):
        return mask.reshape(-1)
    return _in_any_sample(mask, shape)


def has_batch(mask: Tensor, shape: Sequence[int]) -> bool:
    """Whether a matched shape has the mask's samples: one of positions alone fits by chance."""
    return len(mask) in shape or tuple(shape) == (mask.numel(),)


def after_convolution(mask: Tensor, geometry: Geometry) -> Tensor:
    """The mask ``[batch, positions]`` behind a convolution over the positions.

    A padded sample keeps as many positions as it would have alone.

    >>> mask = torch.tensor([[1, 1, 1, 1, 0, 0]]).bool()
    >>> after_convolution(mask, Geometry((2,), (2,), (1,), ((0, 0),))).int()
    tensor([[1, 1, 0]], dtype=torch.int32)
    """
    last = mask.shape[1] - 1
    (outputs,) = geometry.output_size((mask.shape[1],))
    # What a window reaches beyond the zeros that were put around the sample.
    reach = geometry.dilation[0] * (geometry.kernel[0] - 1) - sum(geometry.padding[0])
    first = torch.arange(outputs, device=mask.device) * geometry.stride[0]
    begin, end = (mask[:, at.clamp(0, last)] for at in (first, first + reach))
    return begin & end if reach >= 0 else begin | end


def _spread(mask: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Repeat a mask over the dimensions that follow its own."""
    more = len(shape) - mask.ndim
    return mask.reshape(*mask.shape, *(1,) * more).expand(shape).reshape(-1)


def _in_any_sample(mask: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    positions = mask.shape[1]
    if shape in ((positions,), (1, positions)):
        return mask.any(0)
    if shape == (positions, positions):  # pairs, as in a table of relative positions
        number = mask.double()
        return (number.T @ number > 0).reshape(-1)
    return None


def _is_of_positions(ids: Tensor) -> bool:
    """Whether ids follow from positions: 0, 1, 2 … or, for pairs, the same on every diagonal."""
    if ids.ndim == 1:
        return bool((ids.diff() == 1).all())
    if ids.ndim != 2 or bool((ids == ids[0, 0]).all()):
        return False
    return bool((ids[1:, 1:] == ids[:-1, :-1]).all())
