"""Gradients of a whole network as one vector: taken, multiplied in float64, put back."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

_CHUNK = 1 << 18  # columns turned to float64 at a time: 2 MB per row, whatever the network


def flattened(parameters: Sequence[nn.Parameter], parts: Sequence[Tensor | None]) -> Tensor:
    """One vector ``[p]`` in the parameters' order; zeros where a parameter has no gradient.

    >>> weight, bias = nn.Parameter(torch.ones(1, 2)), nn.Parameter(torch.ones(1))
    >>> flattened([weight, bias], [torch.tensor([[3.0, 4.0]]), None])
    tensor([3., 4., 0.])
    """
    pairs = zip(parameters, parts, strict=True)
    return torch.cat(
        [p.new_zeros(p.numel()) if part is None else part.detach().reshape(-1) for p, part in pairs]
    )


def gradient_of(loss: Tensor, parameters: Sequence[nn.Parameter]) -> Tensor:
    """The gradient of a loss as a vector; no parameter's ``grad`` is touched."""
    return flattened(parameters, torch.autograd.grad(loss, parameters, allow_unused=True))


def put_gradients(parameters: Sequence[nn.Parameter], vector: Tensor) -> None:
    """Make the parts of a vector the parameters' gradients, also of those that had none."""
    for parameter, part in zip(
        parameters, vector.split([p.numel() for p in parameters]), strict=True
    ):
        if parameter.grad is None:
            parameter.grad = torch.empty_like(parameter)
        parameter.grad.copy_(part.view_as(parameter))


def inner(left: Tensor, right: Tensor) -> Tensor:
    """Inner products of the rows of ``[m, p]`` and ``[n, p]``: ``[m, n]``, float64, on the CPU.

    Summed up in float64 on the device, so that only the small matrix leaves it.
    """
    # float64 does not exist on Apple's GPUs.
    device = torch.device("cpu") if left.device.type == "mps" else left.device
    total = torch.zeros(len(left), len(right), dtype=torch.float64, device=device)
    for a, b in zip(left.split(_CHUNK, dim=1), right.split(_CHUNK, dim=1), strict=True):
        total += a.to(device).double() @ b.to(device).double().T
    return total.cpu()


def angle(products: Tensor) -> float:
    """The angle in [0, π] of two vectors from their 2 × 2 Gram matrix; 0 if one of them is 0."""
    # A vector that cancels may have a square just below zero.
    lengths = math.prod(math.sqrt(max(0.0, float(products[i, i]))) for i in range(2))
    if lengths == 0:
        return 0.0
    return math.acos(max(-1.0, min(1.0, float(products[0, 1]) / lengths)))
