"""What one process and two ranks both run: models, data, and a training loop, all by seed."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

import nscl

RULE = nscl.Tolerance(1e-10)
PROXIMAL = {"penalty": nscl.Penalty(20.0), "budget": nscl.Budget(1e-3)}
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


class Reader(nn.Module):
    """All kinds of layers and of norms; what one sample is given depends on no other."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.randn(4, 6))
        self.embedding = nn.Embedding(11, 6)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.norm = nn.LayerNorm(6)
        self.convolution = nn.Conv1d(6, 9, 3, padding=1, groups=3)
        self.spread = nn.ConvTranspose1d(9, 5, 2, stride=2)
        self.scale = nn.RMSNorm(5)
        self.out = nn.Linear(5, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.positions
        x = self.norm(self.attention(x, x, x, need_weights=False)[0])
        x = self.spread(torch.tanh(self.convolution(x.transpose(1, 2))))
        return self.out(torch.tanh(self.scale(x.transpose(1, 2))).mean(1))


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


def protected(model: nn.Module, **options: Any) -> tuple[nscl.Memory, Optimizer]:
    optimizer = OPTIMIZERS[options.pop("optimizer", "sgd")](model.parameters())
    memory = nscl.Memory(model, rule=options.pop("rule", RULE), **options)
    memory.protect(optimizer)
    return memory, optimizer


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


def sentences(task: int) -> list[Tensor]:
    """Four batches, to be dealt to the ranks in turn."""
    generator = torch.Generator().manual_seed(10 + task)
    return [torch.randint(0, 11, (6, 4), generator=generator) for _ in range(4)]


def squares(output: Tensor, batch: Tensor) -> Tensor:
    return output.square().sum(1).mean()


def practise(model: nn.Module, optimizer: Optimizer, part: slice, steps: int) -> None:
    """Train on this part of the samples; a mean over ranks is a mean over all of them."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, 11, (8, 4), generator=generator)
    labels = torch.randint(0, 3, (8,), generator=generator)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(tokens[part]), labels[part]).backward()
        optimizer.step()


def looked_at(
    model: nn.Module, memory: nscl.Memory, optimizer: Optimizer, part: slice
) -> dict[str, Any]:
    """Evaluate between backward and step, and on both sides of a flush."""
    memory.remember(sentences(0)[part])
    tokens = sentences(1)[0]
    for _ in range(3):
        practise(model, optimizer, part, 1)
        optimizer.zero_grad()
        squares(model(tokens[part]), tokens).backward()
        with torch.no_grad():
            model(tokens)
        optimizer.step()
    with torch.no_grad():
        model(tokens)
        memory.flush()
        return {"answer": model(tokens), "values": whole_values(memory.model)}


def two_tasks(
    model: nn.Module, memory: nscl.Memory, optimizer: Optimizer, part: slice
) -> dict[str, Any]:
    """Remember, train, and look at the weights whenever steps that wait must have been treated."""
    memory.remember(sentences(0)[part])
    found: dict[str, Any] = {"first": memory.state_dict()}
    looks = {
        "forgetting": lambda: [layer.drift for layer in memory.forgetting().layers],
        "state_dict": lambda: memory.state_dict()["metadata"]["tasks"],
        "remember": lambda: len(memory.remember(sentences(1)[part]).layers),
    }
    for name, look in looks.items():
        practise(model, optimizer, part, 5)  # of two or of three: some wait
        found[f"before {name}"] = whole_values(memory.model)
        found[name], found[f"after {name}"] = look(), whole_values(memory.model)
    found["second"] = memory.state_dict()
    practise(model, optimizer, part, 4)
    return {**found, "values": whole_values(memory.model)}


def row_batches() -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(n, 5, dtype=torch.float64, generator=generator) for n in (3, 3, 2, 4)]


def twin(model: nn.Module) -> nn.Module:
    """A whole copy in eval mode, without anything that ranks have done to it; all must ask."""
    copied = build(Branches)
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    copied.load_state_dict({**whole_values(model), **buffers})
    return copied.requires_grad_(False).eval()
