"""The penalty follows the learning rate of each parameter group."""

import copy

import torch
from torch import Tensor, nn

import nscl
from nscl.core.covariance.packed import unpack


def stacked(layer: nn.Linear) -> Tensor:
    return torch.cat([layer.weight, layer.bias[:, None]], 1).detach().clone()


def system(memory: nscl.Memory, name: str, rate: float) -> Tensor:
    kept = memory.state_dict()["tensors"]
    C, G = (unpack(kept[f"{kind}/{name}"])[0] for kind in ("covariance", "gradient"))
    r = torch.kron(G / G.diagonal().mean(), C / C.diagonal().mean())
    return torch.eye(len(r), dtype=r.dtype) + 2.0 * rate * r


def one_step(groups: list[tuple[list[str], float]]) -> tuple[nscl.Memory, list[list[Tensor]]]:
    """Both layers before a step, after one alone and after one that is protected."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    memory = nscl.Memory(model, rule=nscl.Penalty(2.0), every=1)
    plain, seen = copy.deepcopy(model), [[stacked(model[i]) for i in (0, 2)]]
    x = torch.randn(12, 4).double()
    for network in (plain, model):
        named = dict(network.named_parameters())
        optimizer = torch.optim.SGD(
            [{"params": [named[name] for name in names], "lr": lr} for names, lr in groups]
        )
        if network is model:
            memory.protect(optimizer)
            memory.remember([torch.arange(80.0).double().view(20, 4).cos()], likelihood="gaussian")
        network(x).square().sum().backward()
        optimizer.step()
        seen.append([stacked(network[i]) for i in (0, 2)])
    return memory, seen


def check(memory: nscl.Memory, seen: list[list[Tensor]], rates: tuple[float, float]) -> None:
    for i, (name, rate) in enumerate(zip(("0", "2"), rates, strict=True)):
        before, alone, ours = (values[i] for values in seen)
        delta = torch.linalg.solve(system(memory, name, rate), (alone - before).flatten())
        assert torch.allclose(ours - before, delta.view_as(before), rtol=1e-9, atol=1e-12), name


def test_each_layer_goes_by_the_rate_of_its_group() -> None:
    memory, seen = one_step([(["0.weight", "0.bias"], 0.1), (["2.weight", "2.bias"], 0.01)])
    check(memory, seen, (0.1, 0.01))


def test_a_bias_in_another_group_goes_by_its_weights_rate() -> None:
    memory, seen = one_step([(["0.bias", "2.bias"], 0.03), (["2.weight", "0.weight"], 0.01)])
    check(memory, seen, (0.01, 0.01))
