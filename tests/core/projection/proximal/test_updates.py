"""One step of ``Penalty`` on every layer type, against the dense Kronecker system."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.core.covariance.packed import unpack
from nscl.core.model.block import Block, bias_vectors, weight_matrix

RATE = 0.03


class Attending(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, **options)
        self.shift = nn.Linear(4, 4)  # queries and values differ

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.attention(x, self.shift(x), x.flip(1), need_weights=False)[0]
        return out.flatten(1)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(self.layer(x).tanh())
        return out


def images(channels: int, *size: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(12, channels, *size).double()


def tokens() -> Tensor:
    return torch.randint(0, 6, (12, 3))


LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "linear": (lambda: nn.Linear(4, 3), lambda: torch.randn(12, 4).double()),
    "no bias": (lambda: nn.Linear(4, 3, bias=False), lambda: torch.randn(12, 4).double()),
    "sequences": (lambda: nn.Linear(4, 3), images(2, 4)),
    "conv": (lambda: nn.Conv2d(2, 3, 3, padding=1), images(2, 4, 4)),
    "strided conv": (lambda: nn.Conv1d(2, 3, 3, stride=2), images(2, 7)),
    "grouped conv": (lambda: nn.Conv1d(4, 6, 2, groups=2), images(4, 5)),
    "conv 3d": (lambda: nn.Conv3d(1, 2, 2), images(1, 3, 3, 3)),
    "transposed": (lambda: nn.ConvTranspose2d(2, 3, 2, stride=2), images(2, 3, 3)),
    "grouped transposed": (lambda: nn.ConvTranspose1d(4, 6, 2, groups=2), images(4, 3)),
    "embedding": (lambda: nn.Embedding(6, 3), tokens),
    "attention": (Attending, images(3, 4)),
    "attention without bias": (lambda: Attending(bias=False), images(3, 4)),
    "attention in parts": (lambda: Attending(kdim=4, vdim=4), images(3, 4)),
    "used twice": (Twice, images(4)),
}


def stacked(block: Block, values: dict[str, Tensor]) -> Tensor:
    """``[groups, out, features]``, with a column for each bias."""
    matrix = weight_matrix(block, values[block.weight])
    if block.layout == "tokens":
        return matrix.mT[None]
    return torch.cat([matrix, *(b[..., None] for b in bias_vectors(block, values))], -1)


def factors(memory: nscl.Memory, block: Block) -> tuple[Tensor, Tensor]:
    """C̃ and G̃, a pair per group, from what is saved."""
    tensors = memory.state_dict()["tensors"]
    kept = tensors[f"covariance/{block.name}"]
    C = kept.diag()[None] if block.layout == "tokens" else unpack(kept)
    G = unpack(tensors[f"gradient/{block.name}"])
    mean = (C.diagonal(dim1=-2, dim2=-1).mean(), G.diagonal(dim1=-2, dim2=-1).mean())
    return C / mean[0], G / mean[1]


def step(name: str, rule: Any, old: Tensor) -> tuple[nscl.Memory, list[dict[str, Tensor]]]:
    """Values before a step, after one that is protected, and after one that is not."""
    model = nn.Sequential(LAYERS[name][0](), nn.Tanh(), nn.Flatten()).double()
    plain = copy.deepcopy(model)
    memory = nscl.Memory(model, rule=rule, every=1)
    optimizers = [torch.optim.SGD(end.parameters(), RATE) for end in (model, plain)]
    memory.protect(optimizers[0])
    memory.remember([old], likelihood="gaussian")
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    new = LAYERS[name][1]()
    for network, optimizer in zip((model, plain), optimizers, strict=True):
        network(new).square().sum().backward()
        optimizer.step()
    return memory, [before, *(dict(end.state_dict()) for end in (model, plain))]


@pytest.mark.parametrize("name", LAYERS)
def test_one_step_is_the_minimiser(name: str) -> None:
    torch.manual_seed(0)
    memory, values = step(name, nscl.Penalty(3.0), LAYERS[name][1]())
    blocks = memory._state.blocks.values()
    assert len(blocks) == (5 if name.startswith("attention") else 1)
    for block in blocks:
        C, G = factors(memory, block)
        first, ours, plain = (stacked(block, found) for found in values)
        for group in range(block.groups):
            system = torch.kron(G[group], C[group]) * 3.0 * RATE
            system += torch.eye(len(system), dtype=system.dtype)
            delta = torch.linalg.solve(system, (plain - first)[group].flatten())
            truth = first[group] + delta.view_as(first[group])
            assert torch.allclose(ours[group], truth, rtol=1e-9, atol=1e-12), block.name
            assert not torch.allclose(ours[group], plain[group], rtol=1e-5), block.name


@pytest.mark.parametrize("name", LAYERS)
def test_an_endless_penalty_leaves_what_old_data_never_used(name: str) -> None:
    torch.manual_seed(0)
    one = LAYERS[name][1]()[:1]
    if one.ndim > 2:  # a constant image: its patches use few directions
        one = one.flatten(2).mean(-1).view(*one.shape[:2], *(1,) * (one.ndim - 2)).expand_as(one)
    memory, values = step(name, nscl.Penalty(1e200), one.expand(12, *one.shape[1:]))
    for block in memory._state.blocks.values():
        C, G = factors(memory, block)
        first, ours, plain = (stacked(block, found) for found in values)
        free = torch.eye(C.shape[-1]).double() - torch.linalg.pinv(C, rtol=1e-12) @ C
        assert free.diagonal(dim1=1, dim2=2).sum() > 0.99, block.name
        truth = first + (plain - first) @ free
        # Seen through G, because outputs that no old loss listened to are free as well.
        assert torch.allclose(G @ ours, G @ truth, atol=1e-9), block.name
        assert not torch.allclose(G @ plain, G @ truth, rtol=1e-5), block.name
