"""What is held number by number: norms of every kind, plain parameters, computed weights."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.core.model import elementwise
from nscl.core.model.inventory import take_inventory
from nscl.errors import UnsupportedError
from tests.core.model.tying import normal, protected_training
from tests.core.protected_scene import EXACT

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


class TinyRMSNorm(nn.Module):
    """As Gemma has it: the weight is added to 1."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1.0 + self.weight)


class Gain(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.gamma * x


class Positions(nn.Module):
    """A table of positions in a module of its own, and a token that only masked inputs use."""

    def __init__(self, width: int, length: int = 3) -> None:
        super().__init__()
        self.pos_embed = nn.Parameter(torch.randn(length, width))
        self.mask_token = nn.Parameter(torch.randn(1, 1, width))

    def forward(self, x: Tensor, masked: bool = False) -> Tensor:
        x = x[:, None] + self.pos_embed
        return (x + self.mask_token if masked else x).mean(1)


def how(memory: nscl.Memory) -> dict[str, str]:
    return {line.name: line.protected_by for line in memory.report().layers}


def wrapped(middle: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), middle, nn.Tanh(), nn.Linear(4, 2)).double()


@pytest.mark.parametrize("make", [TinyRMSNorm, nn.RMSNorm, nn.LayerNorm])
def test_a_norm_is_known_by_how_it_looks(make: Callable[[int], nn.Module]) -> None:
    model = wrapped(make(4))
    assert list(take_inventory(model).norms) == ["1"]
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-10))
    assert memory.remember([normal(2, 4)]).layers[2].kind == make.__name__
    assert how(memory)["1"] == "ewc"


def test_a_registered_norm_may_look_like_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elementwise, "_OWN_NORMS", [])

    class Standardize(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.ones(2, 4))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.gain[0] + x.abs() * self.gain[1]

    model = wrapped(Standardize())
    with pytest.raises(UnsupportedError, match=r"'1.gain' \(Standardize\)"):
        nscl.Memory(model)
    assert nscl.register_norm(Standardize) is Standardize
    memory = nscl.Memory(model)
    memory.remember([normal(3, 4)], likelihood="gaussian")
    assert how(memory)["1"] == "diagonal"
    with pytest.raises(TypeError, match=r"subclass of torch\.nn\.Module"):
        nscl.register_norm(dict)  # type: ignore[type-var]


PLAIN: dict[str, tuple[Callable[[], nn.Module], list[str]]] = {
    "PReLU": (lambda: nn.PReLU(4), ["1.weight"]),
    "one number": (lambda: nn.PReLU(), ["1.weight"]),
    "layer scale": (lambda: Gain(4), ["1.gamma"]),
    "positions": (lambda: Positions(4), ["1.pos_embed"]),
}


@pytest.mark.parametrize(("make", "names"), PLAIN.values(), ids=PLAIN.keys())
@pytest.mark.parametrize("norms", ["ewc", "freeze", "train"])
def test_a_layer_of_vectors_is_held_number_by_number(
    make: Callable[[], nn.Module], names: list[str], norms: Any
) -> None:
    model = wrapped(make())
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-10), norms=norms)
    memory.remember([normal(2, 4)])
    expected = {"ewc": "ewc", "freeze": "frozen", "train": "left free"}[norms]
    assert {how(memory)[name] for name in names} == {expected}
    before, old = {n: p.detach().clone() for n, p in model.named_parameters()}, normal(2, 4)
    memory.remember([old])
    answers = model(old).detach()
    protected_training(model, memory, normal(5, 4))
    for name in names:
        assert torch.equal(model.get_parameter(name), before[name]) == (norms == "freeze")
    if norms == "freeze":
        assert (model(old) - answers).abs().max() < 1e-12


@pytest.mark.parametrize("norms", ["ewc", "freeze"])
def test_a_token_that_no_batch_has_used_is_free_although_its_module_ran(norms: Any) -> None:
    model = wrapped(Positions(4))
    memory = nscl.Memory(model, norms=norms)
    memory.remember([normal(3, 4)])
    assert how(memory)["1.mask_token"] == "free until remembered"
    assert how(memory)["1.pos_embed"] != "free until remembered"
    memory.remember([normal(3, 4)], forward=lambda m, x: m[3](m[1](m[0](x), masked=True)))
    assert how(memory)["1.mask_token"] in ("diagonal", "frozen")


def old_style(layer: nn.Module) -> nn.Module:
    return nn.utils.weight_norm(layer)


def spectral(layer: nn.Module) -> nn.Module:
    return nn.utils.spectral_norm(layer)


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
@pytest.mark.parametrize(
    "norm", [nn.utils.parametrizations.weight_norm, old_style, spectral], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("layer", [nn.Linear(4, 4), nn.Conv1d(4, 4, 1)], ids=["linear", "conv"])
def test_a_computed_weight_is_held_by_what_is_trained(norm: Any, layer: nn.Module) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = norm(type(layer)(4, 4, *layer_shape(layer))), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = x[..., None] if isinstance(self.body, nn.Conv1d) else x
            return self.head(self.body(x).reshape(-1, 4))

    model, old = Model().double().eval(), normal(2, 4)
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-10), norms="freeze")
    report = memory.remember([old])
    trained = [n for n, _ in model.named_parameters() if n.startswith("body")]
    assert {how(memory)[name] for name in trained} == {"frozen"}
    assert any("no null space: body: the weight" in note for note in report.notes)
    before = model(old).detach()
    protected_training(model, memory, normal(5, 4))
    assert (model(old) - before).abs().max() < 1e-12
    assert not torch.equal(model.head.weight, torch.zeros(2, 4))


def test_an_excluded_layer_is_not_reported_as_held() -> None:
    model = wrapped(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)))
    memory = nscl.Memory(model, exclude=["1"])
    assert {how(memory)[n] for n, _ in model[1].named_parameters("1")} == {"excluded"}
    assert not any("no null space" in note for note in memory.report().notes)


def layer_shape(layer: nn.Module) -> tuple[int, ...]:
    return (1,) if isinstance(layer, nn.Conv1d) else ()


def test_the_default_rule_shrinks_what_a_parametrization_trains() -> None:
    model = wrapped(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)))
    memory = nscl.Memory(model, rule=nscl.Penalty(1e12), every=1)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    memory.protect(optimizer)
    memory.remember([normal(9, 4)])
    before = {n: p.detach().clone() for n, p in model.named_parameters() if n.startswith("1.")}
    assert len(before) == 3
    model(normal(9, 4)).square().sum().backward()
    optimizer.step()
    for name, value in before.items():
        assert (model.get_parameter(name) - value).abs().max() < 1e-5


def test_a_single_number_is_held_under_every_rule() -> None:
    class Tempered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.temperature = nn.Linear(4, 2), nn.Parameter(torch.tensor(2.0))

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x) * self.temperature

    for norms, rule in (("ewc", nscl.Penalty(1e12)), ("ewc", nscl.Ridge()), ("freeze", EXACT)):
        model = Tempered().double()
        memory = nscl.Memory(model, rule=rule, norms=norms, acts_on="displacement")
        memory.remember([normal(3, 4)])
        protected_training(model, memory, normal(5, 4))
        moved = abs(float(model.temperature.detach()) - 2.0)
        assert how(memory)["temperature"] in ("diagonal", "ewc", "frozen")
        assert moved < (0.2 if rule == nscl.Ridge() else 1e-6)
