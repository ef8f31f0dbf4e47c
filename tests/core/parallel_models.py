"""What one process and two ranks both run: models, data, and a training loop, all by seed."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import nscl

RULE = nscl.Tolerance(1e-10)
OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-2, weight_decay=0.1),
}


class Branches(nn.Module):
    """Norm layers of two kinds, and a layer that only some batches use."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.batch_norm = nn.Linear(5, 6), nn.BatchNorm1d(6)
        self.extra, self.layer_norm = nn.Linear(6, 6), nn.LayerNorm(6)
        self.last = nn.Linear(6, 3)

    def forward(self, x: Tensor, use_extra: bool = False) -> Tensor:
        x = torch.relu(self.batch_norm(self.first(x)))
        if use_extra:
            x = self.layer_norm(self.extra(x))
        return self.last(x)


class Everything(nn.Module):
    """Sizes that two ranks cannot halve, groups that lie on both, a packed projection."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.convolution = nn.Conv1d(6, 9, 3, padding=1, groups=3)
        self.linear = nn.Linear(9, 5)
        self.out = nn.Linear(5, 3, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        x = self.attention(x, x, x, need_weights=False)[0]
        x = self.convolution(x.transpose(1, 2)).transpose(1, 2)
        return torch.tanh(self.out(torch.tanh(self.linear(x))))


def build(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind().double()


def batches() -> list[dict[str, Any]]:
    """Five batches of different sizes; only odd ones use the extra layer."""
    generator = torch.Generator().manual_seed(7)
    sizes = (3, 4, 2, 5, 3)
    return [
        {"x": torch.randn(n, 5, dtype=torch.float64, generator=generator), "use_extra": i % 2 == 1}
        for i, n in enumerate(sizes)
    ]


def old_tokens() -> list[Tensor]:
    """So few that every layer has free directions left."""
    return [torch.tensor([[0, 1]]), torch.tensor([[1, 0]])]


def new_tokens() -> Tensor:
    return torch.randint(0, 11, (4, 4), generator=torch.Generator().manual_seed(1))


def train(model: nn.Module, optimizer: Optimizer, steps: int = 3) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(new_tokens()).square().sum().backward()
        optimizer.step()


def whole_values(model: nn.Module) -> dict[str, Tensor]:
    """All parameters in full; every rank must ask."""
    return {
        name: (p.full_tensor() if hasattr(p, "full_tensor") else p).detach().clone()
        for name, p in model.named_parameters()
    }


def norm_stack() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Tanh(), nn.Linear(7, 3)).double()


def rows() -> Tensor:
    return torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
