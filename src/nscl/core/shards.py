"""Several processes: sums over ranks, and parameters of which this rank holds some rows (FSDP2)."""

import torch
import torch.distributed as dist
from torch import Tensor

from nscl.errors import UnsupportedError


def is_distributed() -> bool:
    """Whether this process belongs to a group of several."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """The sum of every rank's tensor, on the CPU; the tensor itself in a single process."""
    if not is_distributed():
        return tensor
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    moved = tensor.to(device)
    total = moved.clone() if moved is tensor else moved
    dist.all_reduce(total)
    return total.cpu()


def any_rank(flag: bool) -> bool:
    """Whether the flag is set on any rank; every rank must ask."""
    return bool(sum_over_ranks(torch.tensor([float(flag)])).item())


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that lives here: itself, or this rank's rows of an FSDP2 parameter."""
    to_local = getattr(tensor, "to_local", None)
    return to_local() if to_local is not None else tensor


def whole(tensor: Tensor) -> Tensor:
    """The full tensor; gathers the rows of an FSDP2 parameter, so every rank must ask."""
    full = getattr(tensor, "full_tensor", None)
    return full() if full is not None else tensor


def local_rows(name: str, tensor: Tensor) -> tuple[int, int]:
    """Which rows of dimension 0 live here."""
    placements = getattr(tensor, "placements", None)
    rows = tensor.shape[0]
    if placements is None:
        return 0, rows
    sharded = [p for p in placements if not p.is_replicate()]
    if not sharded:
        return 0, rows
    if len(sharded) > 1 or not sharded[0].is_shard(0):
        raise UnsupportedError(
            f"parameter '{name}' is sharded as {placements}: only shards of dimension 0 "
            "(fully_shard's default) can be projected without gathering"
        )
    mesh = tensor.device_mesh  # type: ignore[attr-defined]
    dim = next(i for i, p in enumerate(placements) if p.is_shard(0))
    chunk = -(-rows // mesh.size(dim))
    start = min(rows, mesh.get_local_rank(dim) * chunk)
    return start, min(rows, start + chunk)
