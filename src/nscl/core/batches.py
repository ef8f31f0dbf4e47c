"""What a batch is: a tensor, a tuple whose first item is the input, or keyword arguments."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn


def call(model: nn.Module, batch: Any) -> Any:
    """Feed a batch to a model the usual way."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(batch[0] if isinstance(batch, Sequence) else batch)


def to_device(value: Any, device: torch.device) -> Any:
    """Move every tensor in a batch to where the model is."""
    if isinstance(value, Tensor):
        # What was made under inference_mode cannot be differentiated through, a copy can.
        return value.to(device, copy=value.is_inference())
    if callable(getattr(value, "to", None)):  # BatchEncoding, PackedSequence: they know how
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: to_device(item, device) for key, item in value.items()}
    if isinstance(value, tuple | list):
        moved = [to_device(item, device) for item in value]
        return type(value)(*moved) if hasattr(value, "_fields") else type(value)(moved)
    return value


def samples_in(batch: Any) -> int:
    """Number of samples: the first dimension of the first tensor (1 where there is none)."""
    first = _first_tensor(batch)
    if first is None or first.ndim == 0:
        return 1
    return int(first.size(0)) if first.numel() else 0  # a nested tensor has no other size


def _first_tensor(batch: Any) -> Tensor | None:
    if isinstance(batch, Tensor):
        return batch
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, Sequence) and not isinstance(batch, str):
        return next((item for item in batch if isinstance(item, Tensor)), None)
    return None


def describe(batch: Any) -> str:
    """A batch in words, for error messages."""
    if isinstance(batch, Tensor):
        dtype = str(batch.dtype).removeprefix("torch.")
        if batch.is_nested:
            return f"nested {dtype} tensor of {batch.size(0)} parts"
        sparse = "" if batch.layout == torch.strided else f"{batch.layout} ".removeprefix("torch.")
        return f"{sparse}{dtype} tensor of shape {tuple(batch.shape)}"
    if isinstance(batch, Mapping):
        return f"{type(batch).__name__} with keys {', '.join(map(str, batch))}"
    if isinstance(batch, Sequence) and batch and isinstance(batch[0], Tensor):
        return f"{type(batch).__name__} whose first item is a {describe(batch[0])}"
    return type(batch).__name__
