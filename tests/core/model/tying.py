"""Networks and training that tests of an inventory have in common."""

import torch
from torch import Tensor, nn

import nscl


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


class Tied(nn.Module):
    """An embedding tied to the output layer, as in GPT, here with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.mix = nn.Linear(4, 4)
        self.out = nn.Linear(4, 7)
        self.out.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.mix(self.embed(ids)).tanh())


class Untaught(nn.Module):
    """A layer of a type that nscl does not know."""

    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def protected_training(model: nn.Module, memory: nscl.Memory, new: Tensor) -> None:
    optimizer = torch.optim.Adam(model.parameters(), 1e-2, weight_decay=0.1)
    with memory.protect(optimizer):
        for _ in range(10):
            optimizer.zero_grad()
            model(new).square().sum().backward()
            optimizer.step()
