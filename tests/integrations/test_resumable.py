"""A memory and the steps that wait, saved without changing anything and loaded exactly."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.errors import MemoryFileError
from nscl.integrations.resumable import MEMORY_FILE, WAITING_FILE, Resumable


class Scene:
    """Two optimizers over one model, with three steps waiting."""

    def __init__(self, *, steps: int = 3) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
        self.memory = nscl.Memory(self.model, every=5)
        self.optimizers = [torch.optim.SGD(layer.parameters(), 0.1) for layer in self.model[::2]]
        self.resumable = Resumable(self.memory)
        self.resumable.protect(self.optimizers)
        self.old, self.new = torch.randn(4, 6), torch.randn(16, 6)
        self.memory.remember([self.old])
        self.train(steps)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.model.zero_grad()
            self.model(self.new).square().sum().backward()
            for optimizer in self.optimizers:
                optimizer.step()

    def weights(self) -> list[Tensor]:
        return [p.detach().clone() for p in self.model.parameters()]

    @property
    def steps(self) -> list[int]:
        return [waiting["steps"] for waiting in self.resumable.state_dict()["waiting"]]


def equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(map(torch.equal, one, other))


@pytest.mark.parametrize("by_file", [False, True])
@pytest.mark.parametrize("first", ["protect", "load"])
def test_it_goes_on_bit_for_bit(by_file: bool, first: str, tmp_path: Path) -> None:
    scene = Scene()
    before = scene.weights()
    scene.resumable.save(tmp_path)
    state = scene.resumable.state_dict()
    assert equal(before, scene.weights())
    assert scene.steps == [3, 3]
    scene.train(4)

    again = Scene(steps=0)
    for parameter, value in zip(again.model.parameters(), before, strict=True):
        parameter.data.copy_(value)
    resumable = again.resumable
    if first == "load":
        for protection in resumable.protections:
            protection.remove()
        resumable = again.resumable = Resumable(again.memory)
    resumable.load(tmp_path) if by_file else resumable.load_state_dict(state)
    assert again.steps == [3, 3]
    if first == "load":
        resumable.protect(again.optimizers)
    again.train(4)
    assert equal(scene.weights(), again.weights())


def test_new_optimizers_take_over_what_waits() -> None:
    scene, truth = Scene(), Scene()
    scene.optimizers = [torch.optim.SGD(layer.parameters(), 0.1) for layer in scene.model[::2]]
    scene.resumable.protect(scene.optimizers)
    assert scene.steps == [3, 3]
    for each in (scene, truth):
        each.train(4)
    assert equal(scene.weights(), truth.weights())


def test_a_memory_put_there_by_hand_has_nothing_waiting(tmp_path: Path) -> None:
    scene = Scene()
    scene.memory.save(tmp_path / MEMORY_FILE)
    scene.train(2)
    scene.resumable.load(tmp_path)
    assert scene.steps == [0, 0]


def test_another_number_of_optimizers_is_refused_if_steps_wait() -> None:
    scene = Scene()
    state: dict[str, Any] = scene.resumable.state_dict()
    whole = torch.optim.SGD(scene.model.parameters(), 0.1)
    with pytest.raises(nscl.NsclError, match="saved with 2 protected optimizers, and there are 1"):
        scene.resumable.protect([whole])
    other = Resumable(scene.memory, *scene.resumable.protections)
    scene.memory.flush()
    with pytest.raises(nscl.NsclError, match="protect the same ones"):
        other.load_state_dict(state)
    state["waiting"] = [{"steps": 0, "rates": {}}] * 2
    other.load_state_dict(state)


def test_files_that_are_damaged_or_missing_are_named(tmp_path: Path) -> None:
    scene = Scene()
    with pytest.raises((OSError, MemoryFileError), match=MEMORY_FILE):
        scene.resumable.load(tmp_path)
    scene.resumable.save(tmp_path)
    (tmp_path / WAITING_FILE).write_text('[{"steps":')
    with pytest.raises(MemoryFileError, match=WAITING_FILE):
        scene.resumable.load(tmp_path)
