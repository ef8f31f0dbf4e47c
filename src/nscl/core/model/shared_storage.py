"""Parameters that share memory: an optimizer, and so a projection, cannot see it."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nscl.core.distributed.fsdp import local
from nscl.errors import UnsupportedError

Address = tuple[torch.device, int]


def reject_overlaps(parameters: Mapping[str, Tensor], excluded: Set[str]) -> None:
    """Refuse parameters of which one moves when another is moved, unless both are excluded.

    ``b.weight.data = a.weight.data`` makes two parameters of one matrix: each would be projected
    by its own inputs, and moved by the other's updates. Parameters side by side in one flat buffer
    are fine.
    """
    in_storage: dict[Address, list[_Place]] = {}
    for name, parameter in parameters.items():
        here = local(parameter.detach())
        if address := _address(here):
            place = _Place(name, here, parameter.requires_grad, name in excluded)
            in_storage.setdefault(address, []).append(place)
    for places in in_storage.values():
        for one, other in _meeting(places):
            moves = one.moves or other.moves
            left_free = one.is_excluded and other.is_excluded
            if moves and not left_free and _overlap(one.tensor, other.tensor):
                raise UnsupportedError(
                    f"'{one.name}' and '{other.name}' are two parameters in the same memory (tied "
                    "by .data), so a step moves both: give both modules the same nn.Parameter, "
                    f"untie them, or exclude=['{one.name}', '{other.name}']"
                )


class Aliases:
    """Finds the parameters in whose memory a tensor lies, also for ``weight.detach()``.

    Parameters of FSDP2 are left out: it reads that memory itself in every pass, to gather them,
    which is not a use of a weight.
    """

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self._parameters: dict[Address, list[tuple[str, Tensor]]] = {}
        for name, parameter in parameters.items():
            if address := _address(parameter.detach()):  # FSDP2's have none
                self._parameters.setdefault(address, []).append((name, parameter))

    def of(self, tensor: Tensor) -> Iterator[str]:
        """Names of the parameters that a tensor shares elements with."""
        address = _address(tensor)
        for name, parameter in self._parameters.get(address, ()) if address else ():
            here = parameter.detach()
            # A model may have given the parameter other memory since.
            if _address(here) == address and _spans_meet(here, tensor) and _overlap(here, tensor):
                yield name


def _address(tensor: Tensor) -> Address | None:
    """Where a tensor's storage is; None if it has none that elements could be compared in."""
    if type(tensor) not in (Tensor, nn.Parameter) or tensor.layout != torch.strided:
        return None
    try:
        address = tensor.untyped_storage().data_ptr() if tensor.numel() else 0
    except (RuntimeError, NotImplementedError):  # a tensor inside of vmap or grad
        return None
    return (tensor.device, address) if address else None


@dataclass(frozen=True)
class _Place:
    """A parameter in its storage."""

    name: str
    tensor: Tensor
    moves: bool
    is_excluded: bool


def _meeting(places: Sequence[_Place]) -> Iterator[tuple[_Place, _Place]]:
    """Pairs that span common bytes. Sorted, so that a flat buffer of many costs no square of it."""
    spans = sorted(((*_bytes(place.tensor), i) for i, place in enumerate(places)))
    reaching: list[tuple[int, int, int]] = []
    for start, stop, i in spans:
        reaching = [span for span in reaching if span[1] > start]
        for _, _, j in reaching:
            yield places[min(i, j)], places[max(i, j)]
        reaching.append((start, stop, i))


def _spans_meet(one: Tensor, other: Tensor) -> bool:
    (a, b), (c, d) = _bytes(one), _bytes(other)
    return a < d and c < b


def _overlap(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors that span common bytes share an element."""
    if one.dtype != other.dtype:
        return True  # one buffer read in two ways
    # Strided views may interleave without meeting: mark the elements themselves.
    (a, b), (c, d) = _range(one), _range(other)
    start = min(a, c)
    marks = torch.zeros(max(b, d) - start, dtype=torch.bool, device="cpu")
    marks.as_strided(one.shape, one.stride(), a - start).fill_(True)
    return bool(marks.as_strided(other.shape, other.stride(), c - start).any())


def _bytes(tensor: Tensor) -> tuple[int, int]:
    """First and last byte of its storage that a tensor spans, the last one excluded."""
    size = tensor.element_size()
    start, stop = _range(tensor)
    return start * size, stop * size


def _range(tensor: Tensor) -> tuple[int, int]:
    """First and last element of a tensor in its storage, the last one excluded."""
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = int(tensor.storage_offset())
    return start, start + last + 1
