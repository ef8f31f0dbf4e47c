"""Layers that were replaced or removed: a memory goes on without them, if asked to."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.core.memory import Memory
from nscl.core.projection.low_rank_projector import Projection
from nscl.core.projection.spectrum import Spectrum
from nscl.errors import ModelMismatchError, NsclError

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


class Network(nn.Module):
    """A body, a norm and a head, and one more head that a pass runs."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)
        self.fc, self.aux = nn.Linear(6, 3), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm(self.body(x))
        heads = [getattr(self, name)(hidden) for name in ("fc", "aux") if hasattr(self, name)]
        return torch.cat(heads, -1)


OLD = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))


def made(**options: Any) -> tuple[Network, nscl.Memory]:
    model = Network()
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-6), norms="freeze", **options)
    memory.remember([OLD])
    return model, memory


def replace_head(model: Network) -> None:
    model.fc = nn.Linear(6, 7)


def remove_aux(model: Network) -> None:
    del model.aux


def replace_norm(model: Network) -> None:
    model.norm = nn.LayerNorm(6)  # type: ignore[assignment]


def train(model: Network, memory: nscl.Memory) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with memory.protect(optimizer):
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(9, 6)).square().mean().backward()
            optimizer.step()


CHANGES: dict[str, tuple[Callable[[Network], None], str]] = {
    "replaced": (replace_head, "fc"),
    "removed": (remove_aux, "aux"),
    "norm": (replace_norm, "norm"),
}


@pytest.mark.parametrize(("change", "name"), CHANGES.values(), ids=CHANGES.keys())
def test_a_living_memory_goes_on_without_a_layer_and_holds_the_rest(change: Any, name: str) -> None:
    model, memory = made()
    body = model.body(OLD).detach()
    change(model)
    with pytest.raises(ModelMismatchError, match=rf"memory\.forget\('{name}'\)"):
        memory.report()
    memory.forget(name)
    found = {line.name: line.protected_by for line in memory.report().layers}
    assert found["body"] == "null space"
    assert found.get(name, "free until remembered") == "free until remembered"
    train(model, memory)
    assert torch.allclose(model.body(OLD), body, atol=1e-5)
    assert memory.report().notes == ("no optimizer is protected: training now would forget",)
    found = {line.name: line.protected_by for line in memory.remember([OLD]).layers}
    assert found.get(name, "null space") in ("null space", "frozen")  # held from now on


@pytest.mark.parametrize(("change", "name"), CHANGES.values(), ids=CHANGES.keys())
def test_a_file_is_read_without_what_is_excluded(tmp_path: Path, change: Any, name: str) -> None:
    model, memory = made()
    memory.save(tmp_path / "m")
    body = model.body(OLD).detach()
    change(model)
    with pytest.raises(ModelMismatchError, match=rf"exclude=\['{name}'\] when loading"):
        nscl.Memory.load(tmp_path / "m", model)
    loaded = nscl.Memory.load(tmp_path / "m", model, exclude=[name])
    assert loaded.exclude == (() if name == "aux" else (name,))  # nothing is left to be excluded
    train(model, loaded)
    assert torch.allclose(model.body(OLD), body, atol=1e-5)
    loaded.remember([OLD])
    loaded.save(tmp_path / "m")
    assert nscl.Memory.load(tmp_path / "m", model).options() == loaded.options()


def test_a_state_dict_is_taken_without_what_the_memory_excludes() -> None:
    model, memory = made()
    state = memory.state_dict()
    replace_head(model)
    with pytest.raises(ModelMismatchError, match="layer 'fc' was remembered as"):
        nscl.Memory.adam_nscl(model).load_state_dict(state)
    other = nscl.Memory(model, rule=nscl.Ratio(), exclude="fc")
    other.load_state_dict(state)
    assert set(other.state_dict()["metadata"]["blocks"]) == {"body", "aux"}


@pytest.mark.parametrize(("change", "name"), CHANGES.values(), ids=CHANGES.keys())
def test_a_state_dict_is_taken_without_what_is_named(change: Any, name: str) -> None:
    model, memory = made()
    state, body = memory.state_dict(), model.body(OLD).detach()
    change(model)
    other = nscl.Memory(model, rule=nscl.Tolerance(1e-6), norms="freeze")
    with pytest.raises(ModelMismatchError, match=rf"exclude=\['{name}'\] when loading"):
        other.load_state_dict(state)
    other.load_state_dict(state, exclude=name)
    assert other.exclude == ()  # its own options stay
    train(model, other)
    assert torch.allclose(model.body(OLD), body, atol=1e-5)
    found = {line.name: line.protected_by for line in other.remember([OLD]).layers}
    assert found.get(name, "null space") in ("null space", "frozen")  # held from now on


def test_only_what_was_named_is_dropped(tmp_path: Path) -> None:
    model, memory = made()
    memory.save(tmp_path / "m")
    replace_head(model)
    remove_aux(model)
    with pytest.raises(ModelMismatchError, match="layer 'aux'"):
        nscl.Memory.load(tmp_path / "m", model, exclude="fc")
    memory.forget("fc")
    with pytest.raises(ModelMismatchError, match="layer 'aux'"):
        memory.report()
    memory.forget("aux")
    assert memory.forgetting().layers[0].name == "body"


def test_an_exclusion_of_the_file_that_the_model_has_no_use_for_can_be_taken_back(
    tmp_path: Path,
) -> None:
    model, memory = made(exclude=["aux"])
    memory.save(tmp_path / "m")
    remove_aux(model)
    with pytest.raises(NsclError, match="exclude='aux' matches no module"):
        nscl.Memory.load(tmp_path / "m", model)
    assert nscl.Memory.load(tmp_path / "m", model, exclude=["aux"]).exclude == ()


def test_a_name_of_nothing_is_a_mistake(tmp_path: Path) -> None:
    model, memory = made()
    memory.save(tmp_path / "m")
    with pytest.raises(NsclError, match=r"nothing was remembered of 'cf'; .*body, fc, aux, norm"):
        memory.forget(["fc", "cf"])
    assert "fc" in memory.state_dict()["metadata"]["blocks"]  # all or nothing
    with pytest.raises(NsclError, match="exclude='cf' matches no module or parameter"):
        nscl.Memory.load(tmp_path / "m", model, exclude=["cf"])
    with pytest.raises(NsclError, match="nothing was remembered of 'cf'"):
        nscl.Memory.adam_nscl(model).load_state_dict(memory.state_dict(), exclude=["cf"])


def test_an_attention_is_dropped_as_a_whole() -> None:
    model = nn.ModuleDict({"attn": nn.MultiheadAttention(4, 2), "out": nn.Linear(4, 2)})
    memory = nscl.Memory.adam_nscl(model)
    memory.remember([torch.randn(3, 2, 4)], forward=lambda m, x: m["out"](m["attn"](x, x, x)[0]))
    model["attn"] = nn.MultiheadAttention(4, 2, bias=False)
    with pytest.raises(ModelMismatchError, match=r"memory\.forget\('attn'\)"):
        memory.report()
    memory.forget("attn")
    assert list(memory.state_dict()["metadata"]["blocks"]) == ["out"]
    assert memory.report().layers[-1].protected_by == "null space"


def test_a_memory_with_a_projector_drops_the_projection_of_a_layer() -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 2, bias=False))
    held = Projection(torch.eye(3)[None, :, :1], removes=True)
    memory = Memory(
        model, projector=lambda *_: (held, Spectrum(*torch.zeros(3, 1, 3))), keep_covariances=False
    )
    memory.protect(torch.optim.SGD(model.parameters(), 1.0))
    memory.remember([torch.randn(2, 3)])
    model[1] = nn.Linear(3, 4, bias=False)
    memory.forget("1")
    assert list(memory.state_dict()["projections"]) == ["0"]
    with pytest.raises(NsclError, match="loaded in part"):
        memory.load_state_dict(memory.state_dict(), exclude=["0"])
    assert memory.report().layers[0].protected_by == "null space"
