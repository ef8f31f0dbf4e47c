"""Two parameters in one storage: a tying that an optimizer, and so a projection, cannot see."""

from collections.abc import Mapping, Set

import torch
from torch import Tensor

from nscl.core.shards import local
from nscl.errors import UnsupportedError


def reject_overlaps(parameters: Mapping[str, Tensor], excluded: Set[str]) -> None:
    """Refuse parameters of which one moves when another is moved, unless both are excluded.

    ``b.weight.data = a.weight.data`` makes two parameters of one matrix: each would be projected
    by its own inputs, and moved by the other's updates. Parameters side by side in one flat buffer
    are fine.
    """
    in_storage: dict[tuple[torch.device, int], list[str]] = {}
    for name, parameter in parameters.items():
        here = local(parameter.detach())
        if type(here) is Tensor and here.layout == torch.strided and here.numel():
            address = here.untyped_storage().data_ptr()
            if address:
                in_storage.setdefault((here.device, address), []).append(name)
    for names in in_storage.values():
        for i, name in enumerate(names):
            for other in names[:i]:
                if not {name, other} <= excluded:
                    _check_pair(other, name, parameters)


def _check_pair(one: str, other: str, parameters: Mapping[str, Tensor]) -> None:
    moves = any(parameters[name].requires_grad for name in (one, other))
    if moves and _overlap(local(parameters[one].detach()), local(parameters[other].detach())):
        raise UnsupportedError(
            f"'{one}' and '{other}' are two parameters in the same memory (tied by .data), so a "
            "step of one moves the other behind its projection: tie them by giving both modules "
            f"the same nn.Parameter, untie them, or exclude=['{one}', '{other}']"
        )


def _overlap(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one storage have an element in common."""
    if one.dtype != other.dtype:
        return True  # one buffer read in two ways
    (a, b), (c, d) = _range(one), _range(other)
    if b <= c or d <= a:
        return False
    # Strided views may interleave without meeting: mark the elements themselves.
    start = min(a, c)
    marks = torch.zeros(max(b, d) - start, dtype=torch.bool)
    marks.as_strided(one.shape, one.stride(), a - start).fill_(True)
    return bool(marks.as_strided(other.shape, other.stride(), c - start).any())


def _range(tensor: Tensor) -> tuple[int, int]:
    """First and last element of a tensor in its storage, the last one excluded."""
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = int(tensor.storage_offset())
    return start, start + last + 1
