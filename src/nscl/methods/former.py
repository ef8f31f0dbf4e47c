"""The network as it was at some moment, answering without a second network."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call

Weights = dict[str, Tensor]


def weights_of(module: nn.Module) -> Weights:
    """A copy of all parameters and buffers."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def placed(weights: Mapping[str, Tensor], device: torch.device) -> Weights:
    """The same on a device: checkpoints are read into the processor's memory."""
    return {name: value.to(device) for name, value in weights.items()}


@contextmanager
def resting(module: nn.Module) -> Iterator[None]:
    """Eval mode, and what was in training mode trains again afterwards."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


@torch.no_grad()
def answer(module: nn.Module, weights: Mapping[str, Tensor], *args: object) -> Tensor:
    """What a module would answer with other weights, in eval mode; it stays as it is."""
    with resting(module):
        output: Tensor = functional_call(module, dict(weights), args)
    return output
