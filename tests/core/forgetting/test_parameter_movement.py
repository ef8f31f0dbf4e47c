"""The movement of norm layers and plain parameters, weighed by F, against slow sums."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import nscl
from tests.core.memories import move

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.linear = nn.Parameter(torch.randn(5)), nn.Linear(4, 5)
        self.norm, self.head = nn.LayerNorm(5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.linear(x) + self.token).tanh())


def loss(output: Tensor, batch: Any) -> Tensor:
    return cross_entropy(output, batch[1])


def fisher(model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """B times the squared gradient of a batch, averaged over batches."""
    parts = dict(model.named_parameters())
    sums = {name: torch.zeros_like(p) for name, p in parts.items()}
    for x, y in batches:
        gradients = torch.autograd.grad(cross_entropy(model(x), y), list(parts.values()))
        for name, gradient in zip(parts, gradients, strict=True):
            sums[name] += len(x) * gradient.square() / len(batches)
    return sums


@pytest.mark.parametrize("rule", [nscl.Penalty(), nscl.Budget(0.1), nscl.Ratio(10.0)])
def test_it_is_half_the_weighed_square_over_several_tasks(rule: Any) -> None:
    model = Net().double()
    memory, truths = nscl.Memory(model, rule=rule), []
    for count in (2, 3, 1):
        move(model, 0.05)
        batches = [(torch.randn(n, 4).double(), torch.randint(0, 3, (n,))) for n in (8, 5)] * count
        truths.append(fisher(model, batches))
        memory.remember(batches, loss=loss)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    move(model)
    found = {one.name: one for one in memory.forgetting().parameters}
    assert list(found) == ["norm", "token"]
    for name, parts in {"norm": ["norm.weight", "norm.bias"], "token": ["token"]}.items():
        F = torch.cat([sum(truth[p] for truth in truths) / 3 for p in parts])
        was = torch.cat([before[p] for p in parts])
        delta = torch.cat([model.get_parameter(p).detach() for p in parts]) - was
        cost = float((F * delta.square()).sum())
        energy = float((F * was.square().clamp_min(1.0)).sum())
        assert found[name].loss == pytest.approx(cost / 2, rel=1e-9)
        assert found[name].weighed == pytest.approx(cost / energy, rel=1e-9)
        assert found[name].moved == pytest.approx(float(delta.norm() / was.norm()), rel=1e-9)


def test_the_predicted_loss_of_one_number_is_the_measured_one() -> None:
    """Alone a number has no other to act together with, and F of many small batches is exact."""
    torch.manual_seed(0)
    model = Net().double()
    x = torch.randn(1000, 4).double()
    memory = nscl.Memory(model)
    memory.remember(x.split(2), temperature=1.0)
    before = model(x).detach().log_softmax(1)
    for part in ("norm.weight", "norm.bias", "token"):
        kept = model.get_parameter(part).detach().clone()
        with torch.no_grad():
            model.get_parameter(part)[2] += 1e-3
        now = model(x).detach().log_softmax(1)
        measured = float((before.exp() * (before - now)).sum(1).mean())
        assert memory.forgetting().total.loss == pytest.approx(measured, rel=0.2), part
        with torch.no_grad():
            model.get_parameter(part).copy_(kept)


def test_budget_keeps_what_is_reported_as_weighed() -> None:
    model = Net().double()
    memory = nscl.Memory(model, rule=nscl.Budget(1e-5), every=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with memory.protect(optimizer):
        memory.remember([torch.randn(32, 4).double()])
        for _ in range(10):
            optimizer.zero_grad()
            model(torch.randn(16, 4).double()).square().mean().backward()
            optimizer.step()
        weighed = [one.weighed for one in memory.forgetting().parameters]
    assert max(weighed) == pytest.approx(1e-5, rel=1e-6)


def test_where_all_of_it_was_zero_movement_has_the_unit_of_one() -> None:
    model = Net().double()
    nn.init.zeros_(model.token)
    memory = nscl.Memory(model)
    memory.remember([torch.randn(8, 4).double()])
    with torch.no_grad():
        model.token += 0.5
    assert memory.forgetting().parameters[1].moved == pytest.approx(0.5)
