"""What forgetting is made of: layers, parameters, statistics, and a list of all that is left."""

import pytest
import torch
from torch import Tensor, nn

import nscl
from tests.core.memories import move

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


class Encoder(nn.Module):
    """Something of everything: layers, norms, a plain parameter, a layer of no known type."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(9, 6), nn.Parameter(torch.zeros(4, 6))
        self.norm1, self.norm2 = nn.LayerNorm(6), nn.BatchNorm1d(6)
        self.linear, self.gru = nn.Linear(6, 6), nn.GRU(6, 6, batch_first=True)
        self.heads = nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)])

    def forward(self, ids: Tensor, task: int = 0) -> Tensor:
        x = self.norm1(self.embed(ids) + self.position)
        x = self.gru(self.linear(x))[0].mean(1)
        return self.heads[task](self.norm2(x))


def test_every_tensor_that_moved_is_counted_or_listed() -> None:
    model = Encoder().double()
    memory = nscl.Memory(model, unsupported="train")
    memory.remember([torch.randint(0, 9, (16, 4))])
    still = memory.forgetting()
    assert (still.total.drift, still.total.loss, still.uncounted) == (0.0, 0.0, ())
    assert all(one.loss == one.moved == 0 for one in still.parameters)
    move(model)
    model.norm2.running_mean += 1.0
    found = memory.forgetting()
    assert [layer.name for layer in found.layers] == ["embed", "linear", "heads.0"]
    assert [one.name for one in found.parameters] == ["norm1", "norm2", "position"]
    assert [shift.name for shift in found.statistics] == ["norm2"]
    assert {one.name: one.why for one in found.uncounted} == {
        "gru": "left free by unsupported='train'",
        "heads.1": "no remembered batch reached this",
    }
    assert all(one.loss > 0 and one.moved > 0 for one in found.parameters)


def test_a_predicted_loss_contains_that_of_parameters() -> None:
    model = Encoder().double()
    memory = nscl.Memory(model, unsupported="train")
    memory.remember([torch.randint(0, 9, (16, 4))])
    move(model)
    found = memory.forgetting()
    parts = [one.loss for one in (*found.layers, *found.parameters)]
    assert found.total.loss == pytest.approx(sum(parts), rel=1e-12)  # type: ignore[arg-type]
    assert found.total.drift == pytest.approx(sum(layer.drift for layer in found.layers))


def test_without_gradients_of_layers_the_total_has_no_loss() -> None:
    model = Encoder().double()
    memory = nscl.Memory(model, rule=nscl.Energy(0.1), unsupported="train")
    memory.remember([torch.randint(0, 9, (16, 4))])
    move(model)
    found = memory.forgetting()
    assert found.total.loss is None
    assert all(one.loss > 0 for one in found.parameters)


def test_a_saved_memory_measures_the_same(tmp_path: object) -> None:
    model = Encoder().double()
    memory = nscl.Memory(model, unsupported="train")
    memory.remember([torch.randint(0, 9, (16, 4))])
    memory.save(f"{tmp_path}/memory.safetensors")
    move(model)
    loaded = nscl.Memory.load(f"{tmp_path}/memory.safetensors", model)
    ids = torch.randint(0, 9, (8, 4))
    assert loaded.forgetting(ids) == memory.forgetting(ids)
