"""Forgetting measured without the old data equals forgetting measured with them."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from tests.core.memories import covariance, move

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


def lines(report: nscl.Report) -> dict[str, Any]:
    return {line.name: line for line in report.layers}


def test_a_report_tells_how_everything_is_held() -> None:
    model = nn.Sequential(
        nn.Linear(3, 4), nn.LayerNorm(4), nn.PReLU(), nn.Linear(4, 2), nn.Linear(2, 2)
    )
    memory = nscl.Memory(model, unsupported="train", exclude=["4"], rule=nscl.Ratio(2.0))
    how = {name: line.protected_by for name, line in lines(memory.report()).items()}
    assert how == {
        "0": "free until remembered",
        "3": "free until remembered",
        "1": "free until remembered",
        "2.weight": "left free",
        "4.bias": "excluded",
        "4.weight": "excluded",
    }
    found = lines(memory.remember([torch.randn(99, 3)]))
    assert found["0"].protected_by == found["3"].protected_by == "null space"
    assert (found["0"].kind, found["0"].features) == ("Linear", 4)
    assert found["1"].protected_by == "ewc"
    assert (found["1"].features, found["1"].free) == (8, 0)


def test_numbers_of_a_report_are_those_of_the_spectrum() -> None:
    model = nn.Linear(3, 2, bias=False).double()
    memory = nscl.Memory(model, rule=nscl.Ratio(10.0))
    rows = torch.diag(torch.tensor([2.0, 1.0, 0.1])).double() * 3**0.5  # C = diag(4, 1, 0.01)
    line = memory.remember([rows]).layers[0]
    assert (line.features, line.free) == (3, 1)
    assert line.share == pytest.approx(0.001996, abs=5e-7)
    assert line.condition == pytest.approx(400)
    soft = nscl.Memory(model, rule=nscl.Ridge(1.0)).remember([rows]).layers[0]
    values = torch.tensor([4, 1, 0.01])
    weights = 1 / (1 + values / values.mean())
    assert soft.free == pytest.approx(float(weights.sum()), rel=1e-6)
    assert soft.share == pytest.approx(float((weights * values).sum() / values.sum()), rel=1e-6)


def test_spectra_are_those_of_the_covariance() -> None:
    model = nn.Conv1d(4, 2, 3, groups=2).double()
    memory = nscl.Memory(model, rule=nscl.Energy(0.1))
    assert memory.spectra() == {}
    memory.remember([torch.randn(5, 4, 9).double()])
    eigenvalues, weights = memory.spectra()["model"]
    truth = torch.linalg.eigvalsh(covariance(memory, "model"))
    assert torch.allclose(eigenvalues, truth, atol=1e-13)
    assert eigenvalues.shape == weights.shape == (2, 7)
    assert memory.report().layers[0].free == weights.sum()
    assert ((weights * eigenvalues).sum(-1) <= 0.1 * eigenvalues.sum(-1)).all()
