"""Forgetting measured without the old data equals forgetting measured with them."""

import pytest
import torch
from torch import Tensor, nn

import nscl
from tests.core.memories import move

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


class Everything(nn.Module):
    """All kinds of layers, each with an input of its own that a hook can catch."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.conv1 = nn.Conv1d(4, 6, 3, padding="same", groups=2)
        self.norm1 = nn.BatchNorm1d(6)
        self.up = nn.ConvTranspose1d(6, 4, 2, stride=2, groups=2)
        self.conv2 = nn.Conv2d(4, 3, (3, 2), padding=1, stride=(2, 1), padding_mode="circular")
        self.linear = nn.Linear(3, 5)
        self.conv3 = nn.Conv3d(1, 2, 2, bias=False)
        self.head = nn.LazyLinear(2)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids).mT
        x = self.up(self.norm1(self.conv1(x)).relu())
        x = self.conv2(torch.stack([x, x.roll(1, -1)], -2))
        x = self.linear(x.movedim(1, -1)).tanh()
        x = self.conv3(torch.cat([x, 2 * x], 1)[:, None])
        return self.head(x.flatten(1))


NAMES = ("embed", "conv1", "up", "conv2", "linear", "conv3", "head")


def make() -> nn.Module:
    model = Everything()
    model(torch.zeros(1, 5, dtype=torch.int64))
    return model.double()


def watch(model: nn.Module) -> dict[str, list[Tensor]]:
    """Keep what every layer is given: the old data that the memory does not have."""
    inputs: dict[str, list[Tensor]] = {name: [] for name in NAMES}
    for name in NAMES:
        model.get_submodule(name).register_forward_hook(
            lambda m, args, out, name=name: inputs[name].append(args[0].detach().clone())
        )
    return inputs


def outputs(model: nn.Module, inputs: dict[str, list[Tensor]]) -> dict[str, Tensor]:
    """Rows of outputs on all old inputs, with the weights as they are."""
    found = {}
    for name, seen in inputs.items():
        layer = model.get_submodule(name)
        channels = -1 if isinstance(layer, nn.Linear | nn.Embedding) else 1
        rows = [layer(x).detach().movedim(channels, -1).flatten(0, -2) for x in list(seen)]
        found[name] = torch.cat(rows)
    return found


def test_drift_is_the_truth_for_every_layer_over_several_tasks() -> None:
    model = make()
    memory, inputs = nscl.Memory.adam_nscl(model), watch(model)
    for _ in range(3):
        move(model, 0.03)
        memory.remember([torch.randint(0, 7, (n, 5)) for n in (3, 2)])
    seen = {name: list(values) for name, values in inputs.items()}
    assert all(len(values) == 6 for values in seen.values())
    before = outputs(model, seen)
    assert memory.forgetting().total.drift == 0
    move(model)
    now = outputs(model, seen)
    found = memory.forgetting()
    assert [layer.name for layer in found.layers] == list(NAMES)
    drifts, energies = [], []
    for layer in found.layers:
        drift = float((now[layer.name] - before[layer.name]).square().sum(-1).mean())
        energy = float(before[layer.name].square().sum(-1).mean())
        assert layer.drift == pytest.approx(drift, rel=1e-10), layer.name
        assert layer.relative == pytest.approx(drift / energy, rel=1e-10), layer.name
        drifts.append(drift)
        energies.append(energy)
    assert found.total.drift == pytest.approx(sum(drifts), rel=1e-10)
    assert found.total.relative == pytest.approx(sum(drifts) / sum(energies), rel=1e-10)


def test_each_parameter_alone() -> None:
    """A bias counts as much as a weight."""
    model = nn.Sequential(nn.Linear(3, 2), nn.Conv1d(1, 2, 1)).double()
    memory, x = nscl.Memory.adam_nscl(model[0]), torch.randn(6, 3).double()
    memory.remember([x])
    with torch.no_grad():
        model[0].bias += torch.tensor([3.0, 4.0])
    assert memory.forgetting().total.drift == pytest.approx(25.0, rel=1e-12)


def test_movement_in_unused_directions_is_no_forgetting() -> None:
    model = nn.Linear(4, 2).double()
    memory, x = nscl.Memory.adam_nscl(model), torch.randn(6, 4).double()
    x[:, 3] = 0
    memory.remember([x])
    with torch.no_grad():
        model.weight[:, 3] += 100
    assert memory.forgetting().total.drift == 0


def test_silent_layers_have_no_relative_drift() -> None:
    model = nn.Linear(3, 2).double()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    memory = nscl.Memory.adam_nscl(model)
    memory.remember([torch.randn(4, 3).double()])
    move(model)
    found = memory.forgetting().total
    assert found.drift > 0
    assert found.relative == 0


def test_nothing_remembered_is_nothing_forgotten() -> None:
    found = nscl.Memory.adam_nscl(nn.Linear(3, 2)).forgetting()
    assert (found.layers, found.statistics, found.total.drift) == ((), (), 0.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_is_measured_in_float64(dtype: torch.dtype) -> None:
    model = nn.Linear(3, 2).to(dtype)
    memory, x = nscl.Memory.adam_nscl(model), torch.randn(50, 3).to(dtype)
    memory.remember([x])
    weights = [p.detach().double().clone() for p in model.parameters()]
    move(model)
    dW, db = (p.detach().double() - w for p, w in zip(model.parameters(), weights, strict=True))
    expected = (x.double() @ dW.mT + db).square().sum(-1).mean()
    assert memory.forgetting().total.drift == pytest.approx(float(expected), rel=1e-5)
