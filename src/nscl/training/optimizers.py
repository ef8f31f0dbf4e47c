"""The optimizer and schedule a configuration names; the optimizer is fresh for every task."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from nscl.training.config.schema import Optim


def make_optimizer(optim: Optim, groups: Sequence[dict[str, Any]]) -> Optimizer:
    """Build it, remembering each group's own rate for the schedule."""
    listed = [{**group, "base_lr": group["lr"]} for group in groups]
    if optim.name == "sgd":
        return torch.optim.SGD(listed, lr=optim.lr, momentum=optim.momentum)
    kind = torch.optim.AdamW if optim.name == "adamw" else torch.optim.Adam
    return kind(listed, lr=optim.lr)


def set_rates(optimizer: Optimizer, optim: Optim, epoch: int, epochs: int) -> None:
    """Milestones count epochs of the configured length; shorter phases scale them."""
    place = epoch if epochs == optim.epochs else epoch * optim.epochs // max(1, epochs)
    for group in optimizer.param_groups:
        group["lr"] = group.get("base_lr", group["lr"]) * optim.factor(place)
