"""What the core's tests look at: a memory's numbers, rows by autograd, the hooks of a model."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev

import nscl
from nscl.core.covariance.packed import unpack
from nscl.core.model.block import weight_matrix
from nscl.core.model.inventory import take_inventory

Forward = Callable[[nn.Module], Tensor]


def covariance(memory: nscl.Memory, name: str) -> Tensor:
    """The mean outer product ``[groups, d, d]`` of a layer's rows, by the public state."""
    state = memory.state_dict()
    rows = state["metadata"]["blocks"][name]["seen"]["rows"]
    return unpack(state["tensors"][f"covariance/{name}"]) / rows


def rows_seen(memory: nscl.Memory, name: str) -> int:
    return int(memory.state_dict()["metadata"]["blocks"][name]["seen"]["rows"])


def rows_of(layer: nn.Module, *args: Any, channel: int = 1, **kwargs: Any) -> Tensor:
    """The rows ``[groups, rows, features (+ 1)]`` a layer multiplies, read off its own derivative.

    An output is linear in the weights of its channel, so its derivative by them *is* the row.
    """
    block = next(iter(take_inventory(layer).blocks.values()))
    parameters = {name: p.detach() for name, p in layer.named_parameters()}

    def outputs(moving: dict[str, Tensor]) -> Tensor:
        out = functional_call(layer, moving, args, kwargs).movedim(channel, 0)
        return out.reshape(block.groups, len(out) // block.groups, -1)[:, 0]

    by = jacrev(outputs)(parameters)
    weights = by[block.weight].flatten(0, 1)
    rows = [
        weight_matrix(block, w)[i // by[block.weight].shape[1], 0] for i, w in enumerate(weights)
    ]
    stacked = torch.stack(rows).unflatten(0, (block.groups, -1))
    return torch.cat([stacked, torch.ones_like(stacked[..., :1])], -1) if block.biases else stacked


def second_moment(rows: Tensor) -> Tensor:
    return rows.mT @ rows / rows.shape[1]


def hooks(model: nn.Module) -> dict[str, dict[str, list[Any]]]:
    """Every hook dictionary of every module, as it is now."""
    return {
        name: {
            key: list(value.items())
            for key, value in vars(module).items()
            if "hooks" in key and isinstance(value, dict)
        }
        for name, module in model.named_modules()
    }


def remembered(memory: nscl.Memory) -> dict[str, Any]:
    """Everything a memory knows, to be compared with ``same``.

    Digests are left out: they describe the model as it is now.
    """
    state = memory.state_dict()
    state["metadata"].pop("digests")
    copied = {name: tensor.clone() for name, tensor in state["tensors"].items()}
    return {"metadata": state["metadata"], "tensors": copied}


def same(first: dict[str, Any], second: dict[str, Any], *, atol: float = 0.0) -> bool:
    if first["tensors"].keys() != second["tensors"].keys():
        return False
    close = all(
        torch.allclose(value.double(), second["tensors"][name].double(), rtol=atol, atol=atol)
        for name, value in first["tensors"].items()
    )
    return close and (atol > 0 or first["metadata"] == second["metadata"])


@torch.no_grad()
def move(model: nn.Module, by: float = 0.1) -> None:
    """Let all parameters go somewhere else."""
    for parameter in model.parameters():
        parameter += by * torch.randn_like(parameter)
