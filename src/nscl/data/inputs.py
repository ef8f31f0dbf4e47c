"""What a network is fed with: one tensor, or a tuple or dictionary of tensors with equal rows.

Pictures are one tensor ``[N, C, H, W]``. Texts are a dictionary: token ids and attention mask, both
``[N, length]``. Everything between the data and the network needs only the few operations here.

>>> texts = {"input_ids": torch.zeros(4, 7).long(), "attention_mask": torch.ones(4, 7).long()}
>>> count(texts), count(rows(texts, torch.tensor([0, 2]))), nbytes(texts)
(4, 2, 448)
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Inputs = Tensor | tuple[Tensor, ...] | dict[str, Tensor]


def parts(inputs: Inputs) -> tuple[Tensor, ...]:
    """Return the tensors of an input, in a fixed order."""
    if isinstance(inputs, Tensor):
        return (inputs,)
    return tuple(inputs.values()) if isinstance(inputs, dict) else inputs


def apply(function: Callable[[Tensor], Tensor], inputs: Inputs) -> Inputs:
    """Return an input of the same kind, every tensor replaced by ``function(tensor)``."""
    if isinstance(inputs, Tensor):
        return function(inputs)
    if isinstance(inputs, dict):
        return {name: function(tensor) for name, tensor in inputs.items()}
    return tuple(function(tensor) for tensor in inputs)


def count(inputs: Inputs) -> int:
    """Return the number of samples."""
    return len(parts(inputs)[0])


def nbytes(inputs: Inputs) -> int:
    """Return the size of all tensors."""
    return sum(tensor.nbytes for tensor in parts(inputs))


def rows(inputs: Inputs, index: Tensor | slice) -> Inputs:
    """Return some samples; the index may be on another device, a slice gives views."""
    if isinstance(index, slice):
        return apply(lambda tensor: tensor[index], inputs)
    return apply(lambda tensor: tensor[index.to(tensor.device)], inputs)


def split(inputs: Inputs, size: int) -> list[Inputs]:
    """Return consecutive parts of at most ``size`` samples."""
    return [rows(inputs, slice(at, at + size)) for at in range(0, count(inputs), size)]


def join(pieces: Sequence[Inputs]) -> Inputs:
    """Return the samples of several inputs of the same kind, one after the other."""
    first = pieces[0]
    joined = [torch.cat(tensors) for tensors in zip(*map(parts, pieces), strict=True)]
    if isinstance(first, Tensor):
        return joined[0]
    return dict(zip(first, joined, strict=True)) if isinstance(first, dict) else tuple(joined)


def to(inputs: Inputs, device: torch.device | str, *, non_blocking: bool = False) -> Inputs:
    """Return the same input on another device."""
    return apply(lambda tensor: tensor.to(device, non_blocking=non_blocking), inputs)
