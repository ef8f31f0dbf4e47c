"""Names that change while everything that is remembered stays."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.core.adapters.rename_layers import rename_layers
from nscl.core.state import check_model
from nscl.errors import ModelMismatchError
from tests.core.adapters.wrapping import NAMES, SCALE, Network, old_inputs, train, wrap

pytestmark = pytest.mark.filterwarnings("ignore:no optimizer is protected")
EXACT = nscl.Tolerance(1e-10)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attend, self.norm = nn.MultiheadAttention(4, 2, batch_first=True), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.attend(x, x, x)[0].mean(1))


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def all_names(model: nn.Module) -> Mapping[str, str]:
    named = (model.named_modules(), model.named_parameters(), model.named_buffers())
    return {name: f"inner.{name}" for group in named for name, _ in group if name}


@pytest.mark.parametrize("norms", ["ewc", "freeze"])
def test_a_renamed_state_is_the_state_of_the_wrapped_model(norms: str) -> None:
    model = Attention()
    batches = [torch.randn(6, 3, 4)]
    memory = nscl.Memory(model, rule=EXACT, norms=norms)  # type: ignore[arg-type]
    memory.remember(batches)
    truth = nscl.Memory(Outer(model), rule=EXACT, norms=norms)  # type: ignore[arg-type]
    truth.remember(batches)
    renamed = rename_layers(memory._state, all_names(model))
    check_model(renamed, truth._live.inventory())
    for part in ("covariances", "reference", "anchors", "rest", "statistics", "spectra"):
        assert getattr(renamed, part).keys() == getattr(truth._state, part).keys(), part
    assert (renamed.blocks, renamed.held) == (truth._state.blocks, truth._state.held)
    for name, covariance in renamed.covariances.items():
        assert torch.equal(covariance.sums, truth._state.covariances[name].sums)


def test_without_the_names_the_memory_says_what_has_happened() -> None:
    model = Network()
    memory = nscl.Memory(model, rule=EXACT, norms="freeze")
    memory.remember([old_inputs()])
    wrap(model)
    with pytest.raises(ModelMismatchError, match=r"'first' .* adapter .* around it"):
        memory.report()


@pytest.mark.parametrize("remembers", [False, True])
def test_a_merged_adapter_leaves_the_memory_of_the_plain_layer(remembers: bool) -> None:
    model = Network()
    x = old_inputs()
    memory = nscl.Memory(model, rule=EXACT, norms="freeze")
    memory.remember([x])
    adapter = wrap(model)
    memory.adapt([adapter], names=NAMES)
    train(model, memory)
    if remembers:
        memory.remember([x])
    plain = adapter.wrapped
    assert isinstance(plain, nn.Linear)
    delta = SCALE * adapter.up.weight.detach() @ adapter.down.weight.detach()  # type: ignore[union-attr,operator]
    before, reference = model(x).detach(), plain.weight.detach().clone()
    with torch.no_grad():
        plain.weight += delta
    model.first = plain
    merged = {"first.weight": reference + delta if remembers else reference}
    memory.remove_adapters(
        ["first.down", "first.up"], names={v: k for k, v in NAMES.items()}, merged=merged
    )
    assert memory._state.covariances["first"].rows == (80 if remembers else 40)
    assert not memory._state.adapters
    model.requires_grad_(True)
    train(model, memory)
    assert (model(x) - before).abs().max() < 1e-12
    assert memory.forgetting().total.relative < 1e-13


def test_what_is_excluded_stays_so_under_its_new_name() -> None:
    model = Network()
    memory = nscl.Memory(model, rule=EXACT, norms="freeze", exclude=["first.bias", "la*"])
    memory.remember([old_inputs()])
    adapter = wrap(model)
    memory.adapt([adapter], names=NAMES)
    assert memory.exclude == ("la*", "first.base_layer.bias")
    assert memory.options()["exclude"] == ["la*", "first.base_layer.bias"]
    assert memory.spectra().keys() == {"first.down"}
