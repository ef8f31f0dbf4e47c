"""Frozen layers are remembered without being decomposed, and are held once they can move."""

import pytest
import torch

import nscl
from tests.core.adapters.wrapping import NAMES, Network, old_inputs, train, wrap

pytestmark = pytest.mark.filterwarnings("ignore:no optimizer is protected")
EXACT = nscl.Tolerance(1e-10)


def prepared() -> tuple[Network, nscl.Memory]:
    model = Network()
    memory = nscl.Memory(model, rule=EXACT, norms="freeze")
    memory.remember([old_inputs()])
    memory.adapt([wrap(model)], names=NAMES)
    return model, memory


def test_frozen_layers_are_neither_decomposed_nor_reported() -> None:
    _, memory = prepared()
    memory.remember([old_inputs()])
    assert memory.spectra().keys() == {"first.down", "first.up"}
    assert [layer.name for layer in memory.report().layers] == ["first.down", "first.up"]
    assert "2 frozen layers are remembered" in str(memory.report())
    assert memory._state.covariances["last"].rows == 80


def test_a_layer_that_is_trained_again_is_held_again() -> None:
    model, memory = prepared()
    x = old_inputs()
    before = model(x).detach()
    model.last.requires_grad_(True)
    train(model, memory)
    assert (model(x) - before).abs().max() < 1e-12
    assert "last" in {layer.name for layer in memory.report().layers}
    assert {"last.weight", "last.bias"}.isdisjoint(memory._state.frozen)


def test_without_adapters_frozen_layers_stay_as_they_were() -> None:
    model = Network()
    model.first.requires_grad_(False)
    memory = nscl.Memory(model, rule=EXACT, norms="freeze")
    memory.remember([old_inputs()])
    assert memory.spectra().keys() == {"first", "last"}


def test_every_weight_trained_after_all_keeps_old_outputs() -> None:
    model, memory = prepared()
    x = old_inputs()
    before = model(x).detach()
    for parameter in (*model.last.parameters(), *model.first.base_layer.parameters()):  # type: ignore[union-attr,operator]
        parameter.requires_grad_(True)
    train(model, memory)
    assert (model(x) - before).abs().max() < 1e-12
    name = "first.base_layer.weight"
    assert not torch.equal(model.get_parameter(name), memory.remembered[name])
