"""Parameters that are no layer's weight: class tokens, positions, layer scale."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nscl

DRAW = torch.Generator().manual_seed(0)

OLD, NEW = (torch.randn(24, 3, 4, generator=DRAW).double() for _ in range(2))

LABELS = torch.randint(0, 3, (24,), generator=DRAW)


class Tokens(nn.Module):
    """A class token before the others, positions, and a token that only masked inputs use."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 4))
        self.positions = nn.Parameter(torch.randn(4, 4))
        self.mask = nn.Parameter(torch.randn(4))
        self.mix, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor, masked: bool = False) -> Tensor:
        x = x + self.mask if masked else x
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(torch.tanh(self.mix(x)).mean(1))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, **call: Any) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(NEW, **call), LABELS).backward()
        optimizer.step()


def protected(**options: Any) -> tuple[nn.Module, nscl.Memory, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Tokens().double()
    memory = nscl.Memory(model, **options)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    memory.protect(optimizer)
    memory.remember([OLD])
    return model, memory, optimizer


def test_they_are_shrunk_by_their_own_fisher() -> None:
    model, memory, optimizer = protected(rule=nscl.Penalty(3.0), every=1)
    free = copy.deepcopy(model)
    train(model, optimizer, 1)
    train(free, torch.optim.Adam(free.parameters(), 0.02), 1)
    tensors = memory.state_dict()["tensors"]
    for name in ("token", "positions"):
        fisher, before = tensors[f"fisher/{name}"], tensors[f"reference/{name}"]
        moved = free.get_parameter(name) - before
        truth = before + moved / (1 + 3.0 * 0.02 * fisher / fisher.mean())
        assert torch.allclose(model.get_parameter(name), truth)


def test_one_that_no_remembered_batch_reaches_is_free() -> None:
    model, memory, optimizer = protected(rule=nscl.Penalty(1e12), every=1)
    how = {layer.name: layer.protected_by for layer in memory.report().layers}
    assert how["positions"] == "diagonal"
    assert how["mask"] == "free until remembered"
    before = copy.deepcopy(model)
    train(model, optimizer, 3, masked=True)
    assert (model.mask - before.mask).abs().min() > 0.01
    assert (model.positions - before.positions).abs().max() < 1e-6


@pytest.mark.parametrize("norms", ["freeze", "train"])
def test_what_norms_says_is_done_to_them(norms: Any) -> None:
    model, memory, optimizer = protected(norms=norms)
    how = {layer.name: layer.protected_by for layer in memory.report().layers}
    assert how["token"] == {"freeze": "frozen", "train": "left free"}[norms]
    before = copy.deepcopy(model)
    train(model, optimizer, 3)
    memory.flush()
    assert torch.equal(model.token, before.token) == (norms == "freeze")


def test_the_papers_rule_pulls_at_them() -> None:
    model, memory, optimizer = protected(rule=nscl.Tolerance(1e-10))
    fisher = memory.state_dict()["tensors"]["fisher/positions"]
    free = copy.deepcopy(model)
    before = copy.deepcopy(model)
    train(model, optimizer, 20)
    train(free, torch.optim.Adam(free.parameters(), 0.02), 20)
    moved = ((m.positions - before.positions).detach() for m in (model, free))
    held, unheld = ((fisher * delta.square()).sum() for delta in moved)
    assert 0 < held < 0.3 * unheld


@pytest.mark.parametrize("norms", ["ewc", "train"])
def test_freezing_unsupported_layers_does_not_freeze_plain_parameters(norms: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.PReLU(4), nn.Linear(4, 2), nn.GRU(2, 3)).double()
    memory = nscl.Memory(model, norms=norms, unsupported="freeze")  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    memory.protect(optimizer)
    memory.remember([torch.randn(5, 4).double()], forward=lambda m, x: m(x)[0])
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    model(torch.randn(9, 4).double())[0].square().sum().backward()
    optimizer.step()
    memory.flush()
    still = {name for name, p in model.named_parameters() if torch.equal(p, before[name])}
    assert still == {name for name in before if name.startswith("3.")}
