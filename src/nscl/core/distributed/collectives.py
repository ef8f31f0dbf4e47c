"""Several processes: sums over ranks, the same model on all ranks, batches in lockstep."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from nscl.errors import FeatureError, ModelMismatchError

T = TypeVar("T")


def is_distributed() -> bool:
    """Whether this process belongs to a group of several."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def rank_and_world() -> tuple[int, int]:
    """This process's number, and how many there are."""
    return (dist.get_rank(), dist.get_world_size()) if is_distributed() else (0, 1)


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """The sum of every rank's tensor, on the CPU; the tensor itself in a single process."""
    return _all_reduce(tensor, dist.ReduceOp.SUM) if is_distributed() else tensor


def max_over_ranks(value: int) -> int:
    """The largest of all ranks' numbers; every rank must call it."""
    if not is_distributed():
        return value
    return int(_all_reduce(numbers([value]), dist.ReduceOp.MAX).item())


def numbers(values: Sequence[float] | Sequence[Sequence[Tensor]]) -> Tensor:
    """Numbers to be summed over ranks: exact and on the CPU, whatever torch's defaults are."""
    return torch.tensor(values, dtype=torch.float64, device="cpu")


def any_rank(flag: bool) -> bool:
    """Whether the flag is set on any rank; every rank must call it."""
    return bool(sum_over_ranks(numbers([float(flag)])).item())


def from_rank(tensor: Tensor, rank: int) -> Tensor:
    """One rank's tensor, on the CPU of every rank; all bring one of the same shape."""
    moved = tensor.to(_device())
    received = moved.clone() if moved is tensor else moved
    dist.broadcast(received, rank)
    return received.cpu()


def _all_reduce(tensor: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
    moved = tensor.to(_device())
    total = moved.clone() if moved is tensor else moved
    dist.all_reduce(total, operation)
    return total.cpu()


def _device() -> str:
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def check_same_model(parameters: Mapping[str, Tensor]) -> None:
    """Sums over ranks mean something only if every rank has the same weights."""
    if not is_distributed():
        return
    plain = {
        name: p.detach()
        for name, p in parameters.items()
        if p.is_floating_point() and not hasattr(p, "placements")
    }
    sizes = numbers([len(plain), sum(p.numel() for p in plain.values())])
    if not torch.equal(*_extremes(sizes)):
        raise ModelMismatchError("the ranks hold different models: remember needs one and the same")
    sums = [[p.double().sum(), p.double().abs().sum()] for p in plain.values()]
    low, high = _extremes(numbers(sums).reshape(-1, 2))
    # Ranks on different hardware may differ by rounding.
    apart = (high - low)[:, 0] > 1e-6 * high[:, 1]
    different = [name for name, differs in zip(plain, apart.tolist(), strict=True) if differs]
    if different:
        raise ModelMismatchError(
            f"'{different[0]}' has different values on different ranks: remember needs the same "
            "weights on every rank (DistributedDataParallel, or broadcast them)"
        )


def _extremes(values: Tensor) -> tuple[Tensor, Tensor]:
    return _all_reduce(values, dist.ReduceOp.MIN), _all_reduce(values, dist.ReduceOp.MAX)


@contextmanager
def as_on_first_rank(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Give every rank the first one's values, as DistributedDataParallel does before a step.

    For running statistics, which each rank has updated by its own batches. An exception puts this
    rank's own values back.
    """
    if not (is_distributed() and tensors):
        yield
        return
    own = [tensor.clone() for tensor in tensors]
    flat = torch.cat([tensor.reshape(-1).double() for tensor in tensors]).to(_device())
    dist.broadcast(flat, 0)
    parts = flat.split([tensor.numel() for tensor in tensors])
    _copy(parts, tensors)
    try:
        yield
    except BaseException:
        _copy(own, tensors)
        raise


def _copy(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source.view(target.shape))


def in_lockstep(items: Iterable[T]) -> Iterator[T]:
    """Go on only when all ranks do: where parameters are sharded, a forward pass is a collective.

    A rank that raises, or runs out of items before others, makes all of them raise.
    """
    iterator, error = iter(items), None
    while True:
        ready = 1.0
        try:
            item = next(iterator)
        except StopIteration:
            ready = 0.0
        except BaseException as problem:
            ready, error = float("nan"), problem
        total = float(sum_over_ranks(numbers([ready])))
        if error is not None:
            raise error
        if total == 0:
            return
        if total != (dist.get_world_size() if is_distributed() else 1):
            raise FeatureError(
                "another rank failed or has a different number of batches: where parameters are "
                "sharded, every rank must bring equally many"
            )
        yield item
