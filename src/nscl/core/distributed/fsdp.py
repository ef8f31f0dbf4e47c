"""Parameters of which this rank holds only some rows: FSDP2's ``fully_shard``."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from nscl.errors import UnsupportedError


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that lives here: itself, or this rank's rows of an FSDP2 parameter."""
    to_local = getattr(tensor, "to_local", None)
    return to_local() if to_local is not None else tensor


def whole(tensor: Tensor) -> Tensor:
    """The full tensor; gathers the rows of an FSDP2 parameter, so every rank must call it."""
    full = getattr(tensor, "full_tensor", None)
    return full() if full is not None else tensor


def part_of(remembered: Tensor, name: str, parameter: Tensor) -> Tensor:
    """The part of a remembered tensor that belongs to this rank's rows of a parameter."""
    here = local(parameter)
    if hasattr(remembered, "placements") and hasattr(parameter, "placements"):
        part = local(remembered)
    else:
        start, stop = local_rows(name, parameter)
        part = whole(remembered)[start:stop] if remembered.ndim else whole(remembered)
    return part.to(here.device, here.dtype)


def gathered(part: Tensor, parameter: Tensor) -> Tensor:
    """The full tensor, of which each rank has computed its parameter's rows."""
    if not is_sharded(parameter):
        return part
    from torch.distributed.tensor import DTensor  # slow to import

    return DTensor.from_local(
        part,
        parameter.device_mesh,  # type: ignore[attr-defined]
        parameter.placements,  # type: ignore[attr-defined]
        shape=parameter.shape,
        stride=parameter.stride(),
    ).full_tensor()


def add_part(change: Tensor, name: str, parameter: Tensor) -> None:
    """Add this rank's rows of a full tensor to a parameter."""
    start, stop = local_rows(name, parameter)
    local(parameter.detach()).add_(change[start:stop] if change.ndim else change)


def is_sharded(tensor: Tensor) -> bool:
    """Whether some rank holds less than the whole of dimension 0."""
    placements = getattr(tensor, "placements", ())
    sizes = [
        tensor.device_mesh.size(i)  # type: ignore[attr-defined]
        for i, placement in enumerate(placements)
        if not placement.is_replicate()
    ]
    return any(size > 1 for size in sizes)


def local_rows(name: str, tensor: Tensor) -> tuple[int, int]:
    """Which rows of dimension 0 live here."""
    placements = getattr(tensor, "placements", None)
    rows = tensor.shape[0] if tensor.ndim else 1
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


def check_together(name: str, weights: Iterable[Tensor], way_out: str) -> None:
    """FSDP2 gathers a layer's weights while it runs; tensor parallelism does not."""
    if any(hasattr(weight, "placements") for weight in weights):
        raise UnsupportedError(
            f"layer '{name}' computes with weights in pieces (tensor parallelism), so what passes "
            f"through it cannot be seen as a whole: call remember before it is taken apart{way_out}"
        )


def reshard(model: nn.Module, *, failed: bool = False) -> None:
    """Bring FSDP2 modules back to the parameters that optimizers hold.

    A forward pass without a backward pass leaves gathered copies in their place; a pass that has
    ``failed`` also leaves FSDP2 in the belief that it is still under way.
    """
    if dist.is_available() and dist.is_initialized():
        from torch.distributed.fsdp import FSDPModule  # slow to import

        modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
        if failed:
            _reset(modules)
        for module in modules:
            module.reshard()


def _reset(modules: Sequence[Any]) -> None:
    """Make FSDP2 forget the pass that it was in; older versions of torch cannot."""
    inner = {id(m) for module in modules for m in module.modules() if m is not module}
    for module in modules:
        if id(module) not in inner and hasattr(module, "reset_iter_state"):
            with suppress(RuntimeError):  # part of another FSDP2 module
                module.reset_iter_state()
