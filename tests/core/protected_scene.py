"""A small protected network, its old and new data, and the same projection done by hand."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import nscl

MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]
EXACT = nscl.Tolerance(1e-12)


def sgd(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, 0.05, momentum=0.9, weight_decay=1e-2)


def mlp(norm: bool = False) -> nn.Sequential:
    middle = [nn.LayerNorm(7)] if norm else []
    return nn.Sequential(nn.Linear(6, 7), *middle, nn.Tanh(), nn.Linear(7, 3)).double()


@dataclass
class Scene:
    """A network under protection that has remembered three rows of old data."""

    model: nn.Module
    optimizer: Optimizer
    memory: nscl.Memory
    protection: nscl.Protection
    old: Tensor
    before: Tensor

    def backward(self) -> None:
        self.optimizer.zero_grad()
        self.model(new_data(self.old)).square().mean().backward()

    def train(self, steps: int = 3) -> None:
        for _ in range(steps):
            self.backward()
            self.optimizer.step()

    def moved(self) -> float:
        return float((self.model(self.old) - self.before).detach().abs().max())


def new_data(like: Tensor) -> Tensor:
    return torch.randn(8, *like.shape[1:], dtype=like.dtype)


def protected_scene(
    make: MakeOptimizer = sgd,
    *,
    model: nn.Module | None = None,
    old: Tensor | None = None,
    **options: Any,
) -> Scene:
    model = mlp() if model is None else model
    old = torch.randn(3, 6, dtype=torch.float64) if old is None else old
    optimizer = make(p for p in model.parameters() if p.requires_grad)
    memory = nscl.Memory(model, rule=options.pop("rule", EXACT), **options)
    protection = memory.protect(optimizer)
    memory.remember([old])
    return Scene(model, optimizer, memory, protection, old, model(old).detach())


def values(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def furthest(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def dense_projectors(model: nn.Sequential, old: Tensor) -> dict[nn.Linear, Tensor]:
    """``I − X⁺X`` for the rows ``[x, 1]`` of every linear layer."""
    found, x = {}, old
    for layer in model:
        if isinstance(layer, nn.Linear):
            rows = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1).detach()
            found[layer] = torch.eye(rows.shape[1]).to(rows) - torch.linalg.pinv(rows) @ rows
        x = layer(x)
    return found


@torch.no_grad()
def stacked(layer: nn.Linear) -> Tensor:
    return torch.cat([layer.weight, layer.bias[:, None]], 1)


@torch.no_grad()
def project_by_hand(projectors: dict[nn.Linear, Tensor], before: dict[nn.Linear, Tensor]) -> None:
    for layer, P in projectors.items():
        held = before[layer] + (stacked(layer) - before[layer]) @ P
        layer.weight.copy_(held[:, :-1])
        layer.bias.copy_(held[:, -1])
