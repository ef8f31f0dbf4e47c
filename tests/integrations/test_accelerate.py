"""accelerate: its wrapped optimizer is protected, and its checkpoints carry the memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import nscl

accelerate = pytest.importorskip("accelerate")

from nscl.integrations.resumable import Resumable  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh_state() -> Iterator[None]:
    """Accelerators share their state within a process."""
    yield
    accelerate.state.AcceleratorState._reset_state(True)


class Scene:
    """A model, an optimizer and data as ``accelerator.prepare`` returns them."""

    def __init__(self, **options: Any) -> None:
        torch.manual_seed(0)
        self.accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
        self.memory = nscl.Memory(self.model, **options)
        self.old = torch.randn(4, 8)
        x = torch.randn(48, 8)
        data = DataLoader(TensorDataset(x, x[:, 0].gt(0).long()), batch_size=8)
        optimizer = torch.optim.AdamW(self.model.parameters(), 1e-2)
        self.run, self.optimizer, self.data = self.accelerator.prepare(self.model, optimizer, data)
        self.protection = self.memory.protect(self.optimizer)

    def train(self, epochs: int = 1) -> None:
        for _ in range(epochs):
            for x, y in self.data:
                with self.accelerator.accumulate(self.run):
                    self.accelerator.backward(nn.functional.cross_entropy(self.run(x), y))
                    self.optimizer.step()
                    self.optimizer.zero_grad()

    def weights(self) -> list[Tensor]:
        return [p.detach().clone() for p in self.model.parameters()]


def test_a_wrapped_optimizer_is_protected_under_accumulation() -> None:
    scene = Scene(rule=nscl.Tolerance(1e-6))
    assert type(scene.optimizer).__name__ == "AcceleratedOptimizer"
    scene.memory.remember([scene.old])
    before, weights = scene.model(scene.old).detach(), scene.weights()
    scene.train(epochs=4)
    assert (scene.model(scene.old) - before).abs().max() < 1e-5
    assert (scene.model[0].weight - weights[0]).abs().max() > 0.01


def test_saved_states_carry_the_memory_and_what_waits(tmp_path: Path) -> None:
    scene = Scene(every=5)
    resumable = Resumable(scene.memory, scene.protection)
    scene.accelerator.register_for_checkpointing(resumable)
    scene.memory.remember([scene.old])
    scene.train()
    scene.accelerator.save_state(str(tmp_path))
    assert resumable.state_dict()["waiting"][0]["steps"] == 3
    scene.train(epochs=2)
    truth = scene.weights()
    scene.accelerator.load_state(str(tmp_path))  # in the same process: back to that moment
    scene.train(epochs=2)
    assert all(map(torch.equal, truth, scene.weights()))

    accelerate.state.AcceleratorState._reset_state(True)
    again = Scene(every=5)
    again.accelerator.register_for_checkpointing(Resumable(again.memory, again.protection))
    again.accelerator.load_state(str(tmp_path))  # as after a kill
    assert again.memory.tasks == 1
    again.train(epochs=2)
    assert all(map(torch.equal, truth, again.weights()))
