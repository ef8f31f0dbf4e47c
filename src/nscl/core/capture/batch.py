"""What a batch is: a tensor, a tuple whose first item is the input, or keyword arguments."""

import copy
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nscl.errors import FeatureError


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
    # BatchEncoding, PackedSequence: they can do it. On the type: keys may be attributes.
    if callable(getattr(type(value), "to", None)):
        return value.to(device)
    if isinstance(value, Mapping):
        return _mapping(value, {key: to_device(item, device) for key, item in value.items()})
    if isinstance(value, tuple | list):
        return _sequence(value, [to_device(item, device) for item in value])
    return value


def _mapping(value: Mapping[Any, Any], moved: dict[Any, Any]) -> Any:
    """The same kind of mapping with other values: its keys may be attributes as well."""
    if type(value) is dict or not isinstance(value, MutableMapping):
        return moved
    try:
        made: Any = copy.copy(value)
        made.update(moved)
        if getattr(value, "__dict__", None) is value:
            made.__dict__ = made  # the idiom for a dict whose attributes are its items
    except Exception as problem:
        raise _cannot_rebuild(value) from problem
    return made


def with_items(batch: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """The same kind of mapping with some of its items replaced; the batch itself stays as it is."""
    return _mapping(batch, {**batch, **items})


def _sequence(value: Sequence[Any], moved: list[Any]) -> Any:
    """The same kind of tuple or list with other items, if its constructor takes them."""
    kind: Any = type(value)
    try:
        made = kind(*moved) if hasattr(kind, "_fields") else kind(moved)
        is_same = all(one is other for one, other in zip(made, moved, strict=True))
    except Exception as problem:
        raise _cannot_rebuild(value) from problem
    if not is_same:
        raise _cannot_rebuild(value)
    return made


def _cannot_rebuild(value: Any) -> FeatureError:
    name = type(value).__name__
    return FeatureError(
        f"a batch is a {name}, which could not be rebuilt with tensors on the model's device: "
        f"give {name} a method to(device), or hand over plain tuples, lists or dicts"
    )


def samples_in(batch: Any) -> int:
    """Number of samples: the first dimension of the first tensor that has one (else 1).

    >>> samples_in((torch.tensor(3), {"x": torch.zeros(64, 6)}))
    64
    """
    found = [tensor for tensor in tensors_in(batch) if tensor.ndim]
    filled = [tensor for tensor in found if tensor.numel()]
    if found and not filled:
        return 0
    return int(filled[0].size(0)) if filled else 1  # a nested tensor has no other size


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors of a batch or an output, however deep, in their order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | Sequence) and not isinstance(value, str | bytes):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_in(item)


def describe(batch: Any) -> str:
    """Type and shape of a batch, for error messages."""
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


def could_not_take(batch: Any, number: int, problem: Exception) -> FeatureError:
    """What to say when the model has raised an exception of its own."""
    return FeatureError(
        f"the model could not take batch {number} ({describe(batch)}): "
        f"{type(problem).__name__}: {problem}. If a batch needs unpacking, give "
        "forward=lambda model, batch: ..."
    )
