"""Steps that wait for ``every``: their rates add up, and every look at the weights treats them."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.core.protection.pending import Pending
from nscl.errors import ProtectionError
from tests.core.projection.proximal.test_plan import OLD, network, protected, ratios, train


def displacement(now: nn.Linear, before: nn.Linear) -> Tensor:
    return torch.cat([now.weight - before.weight, (now.bias - before.bias)[:, None]], 1).detach()


def test_many_steps_are_one_with_the_sum_of_their_rates() -> None:
    model, memory, optimizer = protected(nscl.Penalty(3.0), every=4, lr=0.02)
    plain = copy.deepcopy(model)
    schedule = [0.02, 0.01, 0.03, 0.02]
    other = torch.optim.Adam(plain.parameters(), 0.02)
    before = copy.deepcopy(model)
    for rate in schedule:
        optimizer.param_groups[0]["lr"] = other.param_groups[0]["lr"] = rate
        train(model, optimizer, 1)
        train(plain, other, 1)
    C, G = ratios(memory, "3")
    delta = displacement(plain[3], before[3])
    system = torch.eye(18, dtype=torch.float64) + 3.0 * sum(schedule) * torch.kron(G, C)
    truth = torch.linalg.solve(system, delta.flatten()).view(3, 6)
    assert torch.allclose(displacement(model[3], before[3]), truth, atol=1e-12)


LOOKS: dict[str, Callable[[nscl.Memory, Path], object]] = {
    "flush": lambda memory, folder: memory.flush(),
    "remember": lambda memory, folder: memory.remember([OLD]),
    "forgetting": lambda memory, folder: memory.forgetting(),
    "report": lambda memory, folder: memory.report(),
    "state_dict": lambda memory, folder: memory.state_dict(),
    "save": lambda memory, folder: memory.save(folder / "memory"),
    "merge": lambda memory, folder: memory.merge(copy.deepcopy(memory)),
    "protect": lambda memory, folder: memory.protect(torch.optim.SGD(memory.model.parameters())),
    "remove": lambda memory, folder: memory._protections.all[0].remove(),
}


@pytest.mark.parametrize("look", LOOKS)
def test_nothing_is_left_waiting(look: str, tmp_path: Path) -> None:
    model, memory, optimizer = protected(nscl.Penalty(1e6), every=100)
    train(model, optimizer, 3)
    moved = model[0].weight.detach().clone()
    LOOKS[look](memory, tmp_path)
    assert not torch.equal(model[0].weight, moved)
    treated = model[0].weight.detach().clone()
    memory.flush()  # once is enough
    assert torch.equal(model[0].weight, treated)


def test_the_steps_of_an_optimizer_that_is_gone_are_treated_too() -> None:
    model, memory, optimizer = protected(nscl.Penalty(1e6), every=100)
    train(model, optimizer, 3)
    moved = model[0].weight.detach().clone()
    del optimizer
    memory.protect(torch.optim.SGD(model.parameters(), 0.1))
    assert not torch.equal(model[0].weight, moved)


@pytest.mark.parametrize(
    "options",
    [
        {"rule": nscl.Penalty(10.0)},
        {"rule": nscl.Penalty(10.0), "factors": "input"},
        {"rule": nscl.Budget(1e-4)},
        {"rule": nscl.Energy(0.5), "acts_on": "displacement"},
    ],
    ids=str,
)
def test_it_goes_on_bit_for_bit_in_the_middle_of_every(options: dict[str, Any]) -> None:
    model, memory, optimizer = protected(**options, every=5)
    train(model, optimizer, 7)
    weights, moments = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    waiting = memory._protections.all[0].state_dict()
    assert waiting["steps"] == 2
    train(model, optimizer, 6)

    again = network()
    second = nscl.Memory(again, **options, every=5)
    second.load_state_dict(memory.state_dict())
    again.load_state_dict(weights)
    other = torch.optim.Adam(again.parameters(), 0.05)
    other.load_state_dict(moments)
    second.protect(other).load_state_dict(waiting)
    train(again, other, 6)
    memory.flush()
    second.flush()
    assert all(map(torch.equal, model.parameters(), again.parameters()))


def test_a_state_can_be_taken_without_treating_anything() -> None:
    model, memory, optimizer = protected(nscl.Penalty(1e6), every=100)
    train(model, optimizer, 3)
    moved = model[0].weight.detach().clone()
    taken = memory.state_dict(flush=False)["tensors"]
    assert torch.equal(model[0].weight, moved)
    treated = memory.state_dict()["tensors"]
    assert not torch.equal(model[0].weight, moved)
    assert all(torch.equal(taken[name], treated[name]) for name in treated)


def test_an_optimizer_without_a_rate_gets_a_way_out() -> None:
    class Own(torch.optim.Optimizer):
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, {})

        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    p.data -= 0.1 * p.grad

    model = network()
    memory = nscl.Memory(model, rule=nscl.Penalty())
    optimizer = Own(model.parameters())
    memory.protect(optimizer)
    memory.remember([OLD])
    with pytest.raises(nscl.NsclError, match=r"Own has none .*nscl\.Budget\(\)"):
        train(model, optimizer, 1)
    free = nscl.Memory(network(), rule=nscl.Budget(0.01), every=1)
    other = Own(free.model.parameters())
    free.protect(other)
    free.remember([OLD])
    train(free.model, other, 3)
    assert free.forgetting().total.weighed is not None


def test_a_hard_rule_every_few_steps_ends_where_each_step_would() -> None:
    old = torch.randn(20, 2).double() @ torch.randn(2, 4).double()
    model = nn.Linear(4, 3).double()
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-10), acts_on="displacement", every=5)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    memory.protect(optimizer)
    memory.remember([old])
    before = model(old).detach()
    train(model, optimizer, 12)
    assert (model(old) - before).abs().max() > 1e-3  # two steps wait
    memory.flush()
    assert torch.allclose(model(old), before, atol=1e-12)


def parameters(*names: str) -> dict[str, nn.Parameter]:
    return {name: nn.Parameter(torch.ones(2)) for name in names}


def test_a_step_counts_for_what_has_a_gradient_at_the_rate_of_its_group() -> None:
    moved = parameters("a", "b", "still")
    groups = [{"params": [moved["a"], moved["still"]], "lr": 0.5}, {"params": [moved["b"]]}]
    optimizer, pending = torch.optim.SGD(groups, lr=0.25), Pending()
    for name in "ab":
        moved[name].grad = torch.zeros(2)
    pending.note(optimizer, moved, rated=True)
    optimizer.param_groups[0]["lr"] = torch.tensor(2.0)
    moved["b"].grad = None
    pending.note(optimizer, moved, rated=True)
    again = Pending()
    again.load_state_dict(pending.state_dict())
    for found in (pending, again):
        assert found.steps == 2
        assert found.take() == {"a": 2.5, "b": 0.25}
        assert (found.steps, found.take()) == (0, {})


def test_without_any_gradient_all_may_have_moved_and_a_rate_is_read_only_if_needed() -> None:
    moved, pending = parameters("a", "b"), Pending()
    optimizer = torch.optim.SGD(moved.values(), lr=0.25)
    del optimizer.param_groups[0]["lr"]
    pending.note(optimizer, moved, rated=False)
    assert pending.take() == {"a": 0.0, "b": 0.0}
    with pytest.raises(ProtectionError, match="SGD has none"):
        pending.note(optimizer, moved, rated=True)
