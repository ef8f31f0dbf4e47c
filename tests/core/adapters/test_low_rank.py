"""An adapter in the null space of its layer's inputs learns, and old outputs stay."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import nscl
from nscl.core.adapters.low_rank import Adapter
from nscl.core.adapters.rename_layers import rename_layers
from nscl.errors import NsclError, UnsupportedError
from tests.core.adapters.wrapping import NAMES, SCALE, Network, old_inputs, train, wrap

pytestmark = pytest.mark.filterwarnings("ignore:no optimizer is protected")
EXACT = nscl.Tolerance(1e-10)


def prepared(**options: Any) -> tuple[Network, nscl.Memory]:
    model = Network(bias=options.pop("bias", True))
    memory = nscl.Memory(model, **{"rule": EXACT, "norms": "freeze", **options})
    memory.remember([old_inputs()], **_meaning(memory))
    memory.adapt([wrap(model)], names=NAMES, rule=EXACT)
    return model, memory


def _meaning(memory: nscl.Memory) -> dict[str, Any]:
    return {"likelihood": "gaussian"} if memory.factors == "kronecker" else {}


def layer(model: Network) -> Any:
    return model.first


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"acts_on": "displacement", "every": 4},
        {"rule": nscl.Penalty()},
        {"rule": nscl.Budget(0.1)},
        {"offload": "disk"},
    ],
)
def test_old_outputs_stay_while_the_adapter_learns(options: dict[str, Any], bias: bool) -> None:
    model, memory = prepared(bias=bias, **options)
    before = model(old_inputs()).detach()
    new = torch.randn(30, 8, dtype=torch.float64)
    answered = model(new).detach()
    train(model, memory)
    assert (model(old_inputs()) - before).abs().max() < 1e-12
    assert (model(new) - answered).abs().max() > 0.1
    assert layer(model).up.weight.abs().max() > 0.01
    assert memory.forgetting().total.relative < 1e-13


def test_the_placement_is_the_orthogonal_projection_of_a_up_to_length() -> None:
    model = Network()
    memory = nscl.Memory(model, rule=EXACT, norms="freeze")
    x = old_inputs()
    memory.remember([x])
    adapter = wrap(model)
    before = adapter.down.weight.detach().clone()
    free = torch.eye(8, dtype=torch.float64) - torch.linalg.pinv(x) @ x
    memory.adapt([adapter], names=NAMES)
    truth = before @ free
    truth *= before.norm() / truth.norm()
    torch.testing.assert_close(adapter.down.weight.detach(), truth, rtol=0, atol=1e-12)


def test_two_ordinary_layers_learn_nothing_and_adapt_changes_that() -> None:
    model = Network()
    adapter = wrap(model)
    memory = nscl.Memory(model, rule=EXACT, norms="freeze")
    memory.remember([old_inputs()])
    start = model(old_inputs(8)).detach()
    train(model, memory)
    assert (model(old_inputs(8)) - start).abs().max() < 1e-12  # B is locked
    memory.adapt([adapter])
    before = model(old_inputs()).detach()
    train(model, memory)
    assert (model(old_inputs(8)) - start).abs().max() > 0.01
    assert (model(old_inputs()) - before).abs().max() < 1e-12


def test_a_trained_adapter_that_is_unknown_is_an_error_and_nothing_changes() -> None:
    model = Network()
    memory = nscl.Memory(model, rule=EXACT, norms="freeze")
    memory.remember([old_inputs()])
    adapter = wrap(model)
    nn.init.ones_(adapter.up.weight)
    down = adapter.down.weight.detach().clone()
    state = memory._state
    with pytest.raises(NsclError, match=r"'first.base_layer' is trained already .*'first.up'"):
        memory.adapt([adapter], names=NAMES)
    assert memory._state is state
    assert torch.equal(adapter.down.weight, down)


def test_an_adapter_that_came_after_some_of_the_data_is_an_error() -> None:
    model = Network()
    memory = nscl.Memory(model, rule=EXACT, norms="freeze")
    memory.remember([old_inputs()])
    adapter = wrap(model)
    with pytest.raises(NsclError, match="put around it"):
        memory.remember([old_inputs(2)])
    nn.init.ones_(adapter.up.weight)
    memory._switch(rename_layers(memory._state, NAMES))
    memory.remember([old_inputs(2)])
    with pytest.raises(NsclError, match="not all data were remembered with it"):
        memory.adapt([adapter])


def test_a_trained_adapter_that_was_remembered_is_held_as_two_layers() -> None:
    model = Network()
    adapter = wrap(model, rank=5)
    nn.init.normal_(adapter.up.weight)
    memory = nscl.Memory(model, rule=EXACT, norms="freeze")
    x = old_inputs()
    memory.remember([x])
    memory.adapt([adapter])
    before, were = model(x).detach(), [p.detach().clone() for p in model.parameters()]
    train(model, memory)
    assert (model(x) - before).abs().max() < 1e-12
    moved = [not torch.equal(a, b) for a, b in zip(model.parameters(), were, strict=True)]
    assert sum(moved) == 2
    assert [entry.name for entry in memory.forgetting().layers] == ["first.base_layer"]


def test_adapting_twice_changes_nothing() -> None:
    model, memory = prepared()
    train(model, memory)
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    wrapper = layer(model)
    memory.adapt([Adapter(wrapper.base_layer, wrapper.down, wrapper.up, SCALE)], names=NAMES)
    assert all(torch.equal(p, weights[name]) for name, p in model.named_parameters())
    before = model(old_inputs()).detach()
    train(model, memory)
    assert (model(old_inputs()) - before).abs().max() < 1e-12


def test_the_next_task_is_held_too() -> None:
    model, memory = prepared()
    train(model, memory)
    second = old_inputs(8)[:2]
    memory.remember([second])
    before = [model(x).detach() for x in (old_inputs(), second)]
    train(model, memory)
    for x, was in zip((old_inputs(), second), before, strict=True):
        assert (model(x) - was).abs().max() < 1e-12


def test_forgetting_is_the_movement_of_the_wrapped_layer() -> None:
    model = Network()
    x = old_inputs(8)
    memory = nscl.Memory(model, rule=nscl.Energy(0.2), norms="freeze")
    memory.remember([x])
    memory.adapt([wrap(model)], names=NAMES)
    was = layer(model)(x).detach()
    train(model, memory)
    drift = (layer(model)(x).detach() - was).square().sum(1).mean()
    (line,) = memory.forgetting().layers
    assert drift > 1e-4
    torch.testing.assert_close(line.drift, float(drift))
    torch.testing.assert_close(line.relative, float(drift / was.square().sum(1).mean()))


def test_recall_answers_as_before_the_adapter() -> None:
    model, memory = prepared()
    x = torch.randn(5, 8, dtype=torch.float64)
    before = model(x).detach()
    train(model, memory)
    torch.testing.assert_close(memory.recall(x), before)


def test_a_memory_with_an_adapter_travels(tmp_path: Path) -> None:
    model, memory = prepared(rule=nscl.Penalty())
    memory.save(tmp_path / "memory.safetensors")
    loaded = nscl.Memory.load(tmp_path / "memory.safetensors", model)
    assert loaded._state.adapters == memory._state.adapters
    assert loaded._state.frozen == memory._state.frozen
    before = model(old_inputs()).detach()
    train(model, loaded)
    assert (model(old_inputs()) - before).abs().max() < 1e-12
    assert loaded.forgetting().total.relative < 1e-13


def test_no_free_direction_is_an_error() -> None:
    model = Network()
    memory = nscl.Memory(model, rule=EXACT, norms="freeze")
    memory.remember([old_inputs(8)])
    with pytest.raises(NsclError, match=r"no direction free .* rule=nscl\.Energy"):
        memory.adapt([wrap(model)], names=NAMES)


def test_other_inputs_than_the_layers_are_an_error() -> None:
    model = Network()
    memory = nscl.Memory(model, rule=EXACT, norms="freeze")
    memory.remember([old_inputs()])
    adapter = wrap(model)
    layer(model).down = nn.Linear(5, 2, bias=False).double()
    odd = Adapter(adapter.wrapped, layer(model).down, adapter.up, SCALE)
    with pytest.raises(UnsupportedError, match="does not multiply the inputs"):
        memory.adapt([odd], names=NAMES)
