"""The network as it was: copies that teach it, and its own answers with other weights."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from nscl.core.recall import eval_mode as eval_mode
from nscl.data.inputs import Inputs
from nscl.models.heads import TaskModel

Weights = dict[str, Tensor]


def frozen_copy(model: TaskModel) -> TaskModel:
    """A copy that does not learn, in eval mode."""
    return copy.deepcopy(model).requires_grad_(False).eval()


def learning_copy(model: TaskModel) -> TaskModel:
    """A copy that learns independently, even if the model itself is frozen."""
    return copy.deepcopy(model).requires_grad_(True).train()


def network_bytes(model: nn.Module | None) -> int:
    """Bytes of a network's parameters and buffers; 0 without a network."""
    return 0 if model is None else sum(value.nbytes for value in model.state_dict().values())


def weights_of(module: nn.Module) -> Weights:
    """A copy of all parameters and buffers."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def placed(weights: Mapping[str, Tensor], device: torch.device) -> Weights:
    """The same weights on a device: checkpoints are read into the CPU's memory."""
    return {name: value.to(device) for name, value in weights.items()}


@torch.no_grad()
def answer(module: nn.Module, weights: Mapping[str, Tensor], *args: object) -> Tensor:
    """The output of a module with other weights, in eval mode; the module itself is unchanged."""
    with eval_mode(module):
        output: Tensor = functional_call(module, dict(weights), args)
    return output


@torch.no_grad()
def eval_features(backbone: nn.Module, inputs: Inputs) -> Tensor:
    """Features of a backbone in eval mode: no gradient, and no running statistics move."""
    with eval_mode(backbone):
        features: Tensor = backbone(inputs)
    return features
