"""Copies of the network that teach it, and answers of several heads at once."""

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from nscl.models.heads import TaskModel


def frozen_copy(model: TaskModel) -> TaskModel:
    """A copy that no longer learns, in eval mode: old answers come from it."""
    return copy.deepcopy(model).requires_grad_(False).eval()


def learning_copy(model: TaskModel) -> TaskModel:
    """A copy, of a frozen one too, that learns on its own."""
    return copy.deepcopy(model).requires_grad_(True).train()


def head_logits(model: TaskModel, features: Tensor, tasks: Iterable[int]) -> Tensor:
    """The logits of several heads side by side, ``[samples, Σ classes]``, in one product."""
    return model.side_by_side(features, tasks)


@torch.no_grad()
def features_at_rest(backbone: nn.Module, images: Tensor) -> Tensor:
    """Features from a backbone that stands still: no gradient, no running statistics moved."""
    training = backbone.training
    backbone.eval()
    try:
        features: Tensor = backbone(images)
    finally:
        backbone.train(training)
    return features


def network_bytes(model: nn.Module | None) -> int:
    """What a copy of a network takes: parameters and buffers."""
    return 0 if model is None else sum(value.nbytes for value in model.state_dict().values())
