"""A memory as a value: saved, loaded and copied with everything it knows."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import nscl
from nscl.errors import MemoryFileError
from tests.core.memories import covariance, move, remembered, same
from tests.core.test_serialization import OLD, made, network

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")

OPTIONS: list[dict[str, Any]] = [
    {},
    {"rule": nscl.Ridge(2.0), "acts_on": "displacement", "norms": "freeze"},
    {"rule": nscl.Ratio(3.0, literal=True), "scale": "frobenius", "statistics": "freeze"},
    {"rule": nscl.Energy(0.1), "exclude": ["4"], "unsupported": "freeze", "offload": "disk"},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_everything_comes_back(tmp_path: Path, options: dict[str, Any]) -> None:
    model = network()
    memory = nscl.Memory(model, **options)
    memory.remember([OLD])
    memory.remember([OLD + 1])
    memory.save(tmp_path / "m")
    loaded = nscl.Memory.load(tmp_path / "m", model)
    assert loaded.options() == memory.options()
    assert same(remembered(loaded), remembered(memory))
    assert loaded.report().to_dict() == memory.report().to_dict()
    move(model)
    assert loaded.forgetting() == memory.forgetting()
    assert list(tmp_path.iterdir()) == [tmp_path / "m"]


def test_an_empty_memory_can_be_saved(tmp_path: Path) -> None:
    nscl.Memory.adam_nscl(network()).save(tmp_path / "m")
    loaded = nscl.Memory.load(str(tmp_path / "m"), network())
    assert loaded.tasks == 0
    assert loaded.remember([OLD]).tasks == 1


def test_tied_weights_can_be_saved(tmp_path: Path) -> None:
    model = nn.ModuleDict({"embed": nn.Embedding(5, 4), "out": nn.Linear(4, 5)})
    model["out"].weight = model["embed"].weight
    memory = nscl.Memory.adam_nscl(model)
    memory.remember([torch.tensor([1, 2])], forward=lambda m, x: m["out"](m["embed"](x)))
    memory.save(tmp_path / "m")
    assert same(remembered(nscl.Memory.load(tmp_path / "m", model)), remembered(memory))


def test_state_dicts_go_through_torch_save(tmp_path: Path) -> None:
    model = network()
    memory = made(model)
    torch.save(memory.state_dict(), tmp_path / "m.pt")
    other = nscl.Memory(model, rule=nscl.Energy(0.3))
    other.load_state_dict(torch.load(tmp_path / "m.pt", weights_only=True))
    assert same({**remembered(other), "metadata": 0}, {**remembered(memory), "metadata": 0})
    assert other.options()["rule"] == {"name": "Energy", "share": 0.3}  # its own options stay


@pytest.mark.parametrize("state", [{}, {"metadata": {}}, {"metadata": 3}, network().state_dict()])
def test_a_state_dict_of_something_else_is_refused(state: Any) -> None:
    memory = made(network())
    known = remembered(memory)
    with pytest.raises(MemoryFileError, match="not a memory saved by nscl"):
        memory.load_state_dict(state)
    assert same(remembered(memory), known)


def test_a_loaded_memory_does_not_hang_on_its_file(tmp_path: Path) -> None:
    model, path = network(), tmp_path / "m"
    memory = made(model)
    memory.save(path)
    loaded = nscl.Memory.load(path, model)
    with path.open("r+b") as file:  # in place, as cp does
        file.write(bytes(path.stat().st_size))
    assert same(remembered(loaded), remembered(memory))


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


unprotected = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


@unprotected
def test_bytes_are_what_is_held() -> None:
    model = nn.Sequential(nn.Linear(7, 3), nn.LayerNorm(3))
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-6))
    assert set(memory.nbytes.values()) == {0}
    old = torch.randn(30, 7)
    old[:, 2:] = 0  # two features and a constant are used: three columns of eight
    memory.remember([old])
    assert memory.nbytes == {
        "covariances": 8 * 9 // 2 * 8,
        "projections": 8 * 3 * 4,
        "reference": (21 + 3 + 3 + 3) * 4,
        "anchors": 2 * 2 * 3 * 8,
        "gradients": 0,
        "rest": 0,
    }
