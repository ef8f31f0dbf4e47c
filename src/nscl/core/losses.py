"""What any output can be asked without labels: a loss, and how many samples it is a mean over."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nscl.core.batches import samples_in, tensors_in
from nscl.errors import FeatureError


def default_loss(output: Any) -> Tensor:
    """The model's own arg-max labels where the output is logits, else the mean squared norm.

    Logits are an output (or its ``logits`` entry) of shape ``[samples, classes]``, or
    ``[..., classes]`` under the name ``logits``; no labels are needed. Of several other tensors
    the norms are added up, or norm layers on the way to all but one would not be held.
    """
    logits = logits_of(output)
    if logits is not None:
        rows = logits.flatten(0, -2)
        return F.cross_entropy(rows, rows.detach().argmax(-1))
    tensors = _held(output)
    if not tensors:
        raise FeatureError(
            "the model's output has no floating-point tensor: give remember a loss=..., or "
            "norms='freeze' / 'train'"
        )
    first, *others = (_mean_squared_norm(tensor) for tensor in tensors)
    for other in others:
        first = first + other.to(first.device)
    return first


def samples_of(output: Any, batch: Any) -> int:
    """B: how many samples a loss of this output is a mean over.

    The output's rows: a batch that ``forward`` unpacks may begin with anything. A batch that is a
    tensor has only one answer, its own.
    """
    if isinstance(batch, Tensor):
        return samples_in(batch)
    logits = logits_of(output)
    found = _held(output) if logits is None else [logits]
    return next((int(t.size(0)) for t in found if t.ndim and t.numel()), samples_in(batch))


def float_tensors(output: Any) -> list[Tensor]:
    """All floating-point tensors of an output."""
    return [tensor for tensor in tensors_in(output) if tensor.is_floating_point()]


def _held(output: Any) -> list[Tensor]:
    """The tensors of an output that its parameters can move, or all where none can."""
    tensors = float_tensors(output)
    return [tensor for tensor in tensors if tensor.requires_grad] or tensors


def _mean_squared_norm(tensor: Tensor) -> Tensor:
    precise = tensor.to(torch.promote_types(tensor.dtype, torch.float32))  # sums that float16 lacks
    return precise.square().sum() / max(1, tensor.size(0) if tensor.ndim else 1)


def logits_of(output: Any) -> Tensor | None:
    """The logits among an output, where shape or name tells them; else None."""
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(named, Tensor) and named.ndim >= 2:
        return named
    if isinstance(output, Tensor) and output.ndim == 2 and output.shape[1] >= 2:
        return output
    return None
