"""transformers' linear layers, here by classes of the same names: the library is not needed."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.core.model.inventory import take_inventory
from nscl.core.model.layer_types import Call, layer_type_of
from nscl.errors import FeatureError, UnsupportedError
from tests.core.memories import covariance, move, second_moment
from tests.core.model.tying import normal, protected_training

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


class Conv1D(nn.Module):
    def __init__(self, out: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, out))
        self.bias = nn.Parameter(torch.randn(out))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class TopKRouter(nn.Module):
    def __init__(self, experts: int, features: int) -> None:
        super().__init__()
        self.hidden_dim = features
        self.weight = nn.Parameter(torch.randn(experts, features))

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden_states = hidden_states.reshape(-1, self.hidden_dim)
        logits = nn.functional.linear(hidden_states, self.weight)
        shares, chosen = logits.softmax(-1).topk(2, -1)
        shares /= shares.sum(-1, keepdim=True)
        return logits, shares, chosen


@pytest.fixture(autouse=True)
def _as_in_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Conv1D, "__module__", "transformers.pytorch_utils")
    for kind in (TopKRouter, OwnLinear, Mixer):
        monkeypatch.setattr(kind, "__module__", "transformers.models.some.modeling_some")


def test_a_conv1d_is_a_linear_layer_stored_the_other_way_round() -> None:
    model, x = Conv1D(3, 5).double(), normal(2, 4, 5)
    memory = nscl.Memory.adam_nscl(model)
    memory.remember([x])
    rows = torch.cat([x.reshape(1, -1, 5), torch.ones(1, 8, 1)], -1)
    assert (covariance(memory, "model") - second_moment(rows)).abs().max() < 1e-12
    before = model(x).detach()
    move(model)
    truth = float((model(x).detach() - before).square().sum(-1).mean())
    assert memory.forgetting().total.drift == pytest.approx(truth, rel=1e-12)


def test_a_class_that_fully_shard_has_put_before_it_changes_nothing() -> None:
    class Sharded(Conv1D):
        """fully_shard gives its modules a class of this kind."""

    Sharded.__module__ = "torch.distributed.fsdp._fully_shard._fully_shard"
    assert take_inventory(Sharded(3, 5)).blocks["model"].layout == "columns"


@pytest.mark.parametrize("rule", [nscl.Tolerance(1e-10), nscl.Ridge(), nscl.Penalty()])
def test_it_is_treated_as_the_linear_layer_is(rule: Any) -> None:
    model, linear = Conv1D(3, 5).double(), nn.Linear(5, 3).double()
    with torch.no_grad():
        linear.weight.copy_(model.weight.T)
        linear.bias.copy_(model.bias)
    old, new = normal(2, 5), normal(9, 5)
    for layer in (model, linear):
        memory = nscl.Memory(layer, rule=rule, every=1)
        optimizer = torch.optim.SGD(layer.parameters(), 0.05)
        memory.protect(optimizer)
        memory.remember([old])
        for _ in range(3):
            optimizer.zero_grad()
            layer(new).square().sum().backward()
            optimizer.step()
    assert torch.allclose(model.weight, linear.weight.T, atol=1e-12)
    assert torch.allclose(model.bias, linear.bias, atol=1e-12)


class OwnLinear(nn.Linear):
    def __init__(self, features: int, out: int, factor: float = 1.0) -> None:
        super().__init__(features, out)
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * (x @ self.weight.T) + self.bias


def test_a_linear_layer_with_a_forward_of_its_own_is_compared() -> None:
    memory = nscl.Memory.adam_nscl(nn.Sequential(OwnLinear(5, 3)))
    assert memory.remember([torch.randn(2, 5)]).layers[0].protected_by == "null space"
    with pytest.raises(FeatureError, match=r"'0' \(OwnLinear\) does not compute"):
        nscl.Memory.adam_nscl(nn.Sequential(OwnLinear(5, 3, 2.0))).remember([torch.randn(2, 5)])


class Mixer(nn.Module):
    """As Mamba: it uses the weights of children itself."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1d = nn.Conv1d(4, 4, 2, groups=4, padding=1)
        self.dt_proj, self.out = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        conv, steps = self.conv1d, self.dt_proj
        mixed = nn.functional.conv1d(x.mT, conv.weight, conv.bias, padding=1, groups=4).mT
        return self.out(torch.tanh(mixed @ steps.weight.T + steps.bias))


def test_weights_that_another_module_uses_are_held_number_by_number() -> None:
    model, old = Mixer().double(), normal(2, 5, 4)
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-10), norms="freeze")
    report = memory.remember([old])
    how = {line.name: line.protected_by for line in report.layers}
    assert [how[f"{n}.weight"] for n in ("conv1d", "dt_proj")] == ["frozen", "frozen"]
    assert any("no null space: conv1d, dt_proj: the weight" in note for note in report.notes)
    before = model(old).detach()
    protected_training(model, memory, normal(3, 5, 4))
    assert (model(old) - before).abs().max() < 1e-12


def test_a_subclass_that_computes_something_else_is_not_known() -> None:
    class Other(Conv1D):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(2 * x)

    assert take_inventory(Conv1D(3, 5)).blocks["model"].layout == "columns"
    with pytest.raises(UnsupportedError, match="Other"):
        nscl.Memory.adam_nscl(nn.Sequential(Other(3, 5)))


def test_gradients_at_a_routers_logits_come_from_the_shares() -> None:
    model, x = TopKRouter(4, 6).double(), normal(7, 6)
    logits, shares, chosen = model(x)
    outside = normal(*shares.shape)
    (truth,) = torch.autograd.grad(shares, logits, outside)
    kind = layer_type_of(model)
    assert kind is not None
    assert kind.followed == 1
    (found,) = kind.gradients(model, Call((x,), {}, (logits, shares, chosen)), outside)
    assert torch.allclose(found[0], truth, atol=1e-14)
    assert found.abs().max() > 1e-3


def test_a_router_is_weighed_by_what_its_shares_are_worth() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router, self.head = TopKRouter(4, 6), nn.Linear(2, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.router(x)[1])

    memory = nscl.Memory(Mixed().double())
    report = memory.remember([normal(5, 6)])
    assert [line.protected_by for line in report.layers] == ["both factors", "both factors"]
