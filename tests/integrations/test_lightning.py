"""KeepMemory under the real Trainers of Lightning, by both of its names, and in a Fabric loop."""

import importlib
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import nscl

pytest.importorskip("lightning")

from lightning.fabric import Fabric

from nscl.integrations.lightning import KeepMemory
from nscl.integrations.resumable import Resumable

# Of Lightning itself, about choices that these tests make on purpose.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The '.*' does not have many workers"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
    pytest.mark.filterwarnings("ignore:The dirpath has changed"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated"),
]


def task(seed: int, rank: int = 3) -> DataLoader[Any]:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(48, rank, generator=draw) @ torch.randn(rank, 8, generator=draw)
    return DataLoader(TensorDataset(x, x[:, 0].gt(0).long()), batch_size=8)


FIRST, SECOND = task(1), task(2)

# Lightning begins an interrupted epoch with its first batch again: here all batches are alike.
X, Y = SECOND.dataset.tensors  # type: ignore[attr-defined]
ALIKE = DataLoader(TensorDataset(X[:8].repeat(6, 1), Y[:8].repeat(6)), batch_size=8)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))


def module(name: str, model: nn.Module) -> Any:
    """A LightningModule of ``lightning`` or ``pytorch_lightning``."""
    lightning = importlib.import_module(name)

    class Classifier(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            answer: Tensor = self.model(x)
            return answer

        def training_step(self, batch: Any, index: int) -> Tensor:
            return nn.functional.cross_entropy(self(batch[0]), batch[1])

        def validation_step(self, batch: Any, index: int) -> None:
            waiting.append(keep_of(self.trainer).resumable.state_dict()["waiting"][0]["steps"])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), 1e-2)

    waiting: list[int] = []
    made = Classifier()
    made.waiting = waiting
    return made


def keep_of(trainer: Any) -> Any:
    return next(c for c in trainer.callbacks if isinstance(c, KeepMemory))


def trainer(name: str, folder: Path, *callbacks: Any, **options: Any) -> Any:
    lightning = importlib.import_module(name)
    return lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=list(callbacks),
        **{"max_epochs": 2, "enable_checkpointing": False, **options},
    )


NAMES = ["lightning.pytorch", "pytorch_lightning"]


@pytest.mark.parametrize("name", NAMES)
def test_old_answers_stay(name: str, tmp_path: Path) -> None:
    pytest.importorskip(name)
    model = network()
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-6))
    whole = module(name, model)
    trainer(name, tmp_path, KeepMemory(memory, remember=True)).fit(whole, FIRST)
    assert memory.tasks == 1
    old = FIRST.dataset.tensors[0]  # type: ignore[attr-defined]
    before, weights = model(old).detach(), [p.detach().clone() for p in model.parameters()]
    trainer(name, tmp_path, KeepMemory(memory, remember=SECOND)).fit(whole, SECOND)
    assert memory.tasks == 2
    assert (model(old) - before).abs().max() < 1e-4
    gone = [(p - w).abs().max() for p, w in zip(model.parameters(), weights, strict=True)]
    assert torch.stack(gone).max() > 0.01


def test_nothing_waits_when_validating(tmp_path: Path) -> None:
    model = network()
    memory = nscl.Memory(model)
    whole = module(NAMES[0], model)
    options = {"val_check_interval": 4, "num_sanity_val_steps": 0}
    trainer(NAMES[0], tmp_path, KeepMemory(memory, remember=True), **options).fit(
        whole, FIRST, FIRST
    )
    keep = KeepMemory(memory)
    trainer(NAMES[0], tmp_path, keep, **options).fit(whole, SECOND, FIRST)
    assert whole.waiting
    assert not any(whole.waiting)


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_resumes_bit_for_bit(name: str, tmp_path: Path) -> None:
    """Also one between two treatments: the steps that wait are part of it."""
    lightning = importlib.import_module(name)

    def start(steps: int, path: Path | None = None) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        model = network()
        memory = nscl.Memory(model, every=4)
        keep, options = KeepMemory(memory), {"max_steps": steps, "max_epochs": -1}
        save = lightning.pytorch.callbacks if hasattr(lightning, "pytorch") else lightning.callbacks
        every = save.ModelCheckpoint(tmp_path / str(steps), every_n_train_steps=9, save_top_k=-1)
        whole = module(name, model)
        if path is None:
            trainer(name, tmp_path, KeepMemory(memory, remember=True)).fit(whole, FIRST)
        run = trainer(name, tmp_path, keep, every, **options, enable_checkpointing=True)
        run.fit(whole, ALIKE, ckpt_path=path)
        return model.state_dict(), memory.state_dict()["tensors"]

    truth = start(15)
    start(10)
    (path,) = (tmp_path / "10").glob("*step=9.ckpt")
    written = torch.load(path, weights_only=True)["callbacks"]["KeepMemory"]
    assert written["waiting"][0]["steps"] == 3
    resumed = start(15, path)
    for one, other in zip(truth, resumed, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)


def test_another_models_optimizer_is_left_alone(tmp_path: Path) -> None:
    model = network()
    whole = module(NAMES[0], model)
    whole.automatic_optimization = False
    whole.other = nn.Linear(8, 2)
    whole.configure_optimizers = lambda: [
        torch.optim.SGD(whole.other.parameters(), 0.1),
        torch.optim.SGD(model.parameters(), 0.1),
    ]
    whole.training_step = lambda batch, batch_idx: None
    keep = KeepMemory(nscl.Memory(model))
    trainer(NAMES[0], tmp_path, keep, max_epochs=1).fit(whole, SECOND)
    (protection,) = keep.resumable.protections
    assert protection.describe() == "SGD over 4 parameters"


def test_fabric_saves_and_loads_a_memory(tmp_path: Path) -> None:
    fabric = Fabric(accelerator="cpu", devices=1)

    def start() -> tuple[Any, Any, dict[str, Any]]:
        model = network()
        memory = nscl.Memory(model, every=4)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        wrapped, stepped = fabric.setup(model, optimizer)
        parts = {"model": wrapped, "optimizer": stepped}
        return memory, model, {**parts, "memory": Resumable(memory, memory.protect(stepped))}

    def train(parts: dict[str, Any], batches: list[Any]) -> None:
        for x, y in batches:
            parts["optimizer"].zero_grad()
            fabric.backward(nn.functional.cross_entropy(parts["model"](x), y))
            parts["optimizer"].step()

    memory, model, parts = start()
    memory.remember(FIRST)
    batches = list(SECOND)
    train(parts, batches[:3])
    fabric.save(tmp_path / "now.ckpt", parts)
    train(parts, batches[3:])
    truth = {name: value.clone() for name, value in model.state_dict().items()}
    again, restored, parts = start()
    fabric.load(tmp_path / "now.ckpt", parts)
    assert parts["memory"].state_dict()["waiting"][0]["steps"] == 3
    train(parts, batches[3:])
    assert all(torch.equal(truth[name], value) for name, value in restored.state_dict().items())
    assert again.tasks == 1


def test_the_fabric_example(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    example = Path(__file__).parents[2] / "examples" / "fabric_loop.py"
    monkeypatch.syspath_prepend(str(example.parent))
    runpy.run_path(str(example), run_name="__main__")
    kept, learned = (float(line.split()[-2]) for line in capsys.readouterr().out.splitlines())
    assert kept > 95
    assert learned > 85
