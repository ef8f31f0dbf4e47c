"""A small network whose layer gets a low-rank adapter, as libraries for that do it."""

import torch
from torch import Tensor, nn

import nscl
from nscl.core.adapters.low_rank import Adapter

SCALE = 2.0
NAMES = {
    "first": "first.base_layer",
    "first.weight": "first.base_layer.weight",
    "first.bias": "first.base_layer.bias",
}


class WithAdapter(nn.Module):
    """A layer, and ``scale·B·A`` beside it; B begins at zero."""

    def __init__(self, base_layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.down = nn.Linear(base_layer.in_features, rank, bias=False).double()
        self.up = nn.Linear(rank, base_layer.out_features, bias=False).double()
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) + SCALE * self.up(self.down(x))


class Network(nn.Module):
    def __init__(self, *, bias: bool = True) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(8, 6, bias=bias), nn.LayerNorm(6)
        self.last = nn.Linear(6, 3)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x)).tanh())


def old_inputs(rank: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(*size, generator=generator, dtype=torch.float64)
            for size in ((40, rank), (rank, 8))]  # fmt: skip
    return made[0] @ made[1]


def wrap(model: Network, rank: int = 2) -> Adapter:
    """Put an adapter around the first layer, and freeze all but it."""
    model.requires_grad_(False)
    wrapper = WithAdapter(model.first, rank)
    model.first = wrapper  # type: ignore[assignment]
    return Adapter(wrapper.base_layer, wrapper.down, wrapper.up, SCALE)


def train(model: nn.Module, memory: nscl.Memory, steps: int = 10) -> None:
    x = torch.randn(30, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
    with memory.protect(optimizer):
        for _ in range(steps):
            optimizer.zero_grad()
            (model(x) - 1.0).square().mean().backward()
            optimizer.step()
