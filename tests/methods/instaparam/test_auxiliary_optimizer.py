"""The controller's own Adam: torch's, taken up again bit for bit, the same on all ranks."""

import copy
from pathlib import Path

import torch
from torch import Tensor, nn

from nscl.methods.instaparam.auxiliary_optimizer import AuxiliaryOptimizer
from tests.methods.instaparam.controller_worker import everything
from tests.runs import two_ranks


def learn(module: nn.Module, optimizer: AuxiliaryOptimizer, seed: int) -> None:
    torch.manual_seed(seed)
    optimizer.zero_grad()
    module(torch.randn(4, 3)).square().sum().backward()
    optimizer.step(4)


def weights(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def test_steps_are_adams() -> None:
    module = nn.Linear(3, 2)
    other = copy.deepcopy(module)
    optimizer, adam = (
        AuxiliaryOptimizer(module, rate=0.02),
        torch.optim.Adam(other.parameters(), lr=0.02),
    )
    for step in range(3):
        learn(module, optimizer, step)
        torch.manual_seed(step)
        adam.zero_grad()
        other(torch.randn(4, 3)).square().sum().backward()
        adam.step()
    assert torch.equal(weights(module), weights(other))


def test_without_a_gradient_nothing_moves() -> None:
    module = nn.Linear(3, 2)
    optimizer = AuxiliaryOptimizer(module, rate=0.02)
    learn(module, optimizer, 0)
    before = weights(module)
    optimizer.zero_grad()
    optimizer.step(4)
    assert torch.equal(weights(module), before)


def test_taken_up_again_it_goes_on_as_it_would_have() -> None:
    module = nn.Linear(3, 2)
    optimizer = AuxiliaryOptimizer(module, rate=0.02)
    learn(module, optimizer, 0)
    twin = copy.deepcopy(module)
    resumed, anew = AuxiliaryOptimizer(twin, rate=0.02), copy.deepcopy(module)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for each, its in (
        (module, optimizer),
        (twin, resumed),
        (anew, AuxiliaryOptimizer(anew, rate=0.02)),
    ):
        learn(each, its, 1)
    assert torch.equal(weights(module), weights(twin))
    assert not torch.equal(weights(module), weights(anew))


def test_two_ranks_learn_as_one(tmp_path: Path) -> None:
    """Real gloo processes with unequal parts of each batch; also of the Fisher information."""
    two_ranks("tests.methods.instaparam.controller_worker", tmp_path)
    for rank in ("0", "1"):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for name, expected in everything(rank=0, ranks=1).items():
            torch.testing.assert_close(found[name], expected, rtol=1e-8, atol=1e-12)
