"""Engineer A ships a model with its memory; engineer B teaches it more without A's data.

python examples/ship_memory.py             A trains and saves; then B starts in a process of its own
python examples/ship_memory.py DIR         only B, with the model and the memory in DIR
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_model, save_model

import nscl
from nscl.data import open_stream
from nscl.models import MLP, MultiHead
from two_tasks import accuracy, train

OLD, NEW = open_stream("split-digits-5", tasks=2)


def engineer_a(folder: Path) -> None:
    """Train, remember, save both."""
    model = MultiHead(MLP(64, width=128), [5, 5])
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    memory = nscl.Memory(model)
    memory.protect(optimizer)
    train(model, optimizer, OLD, epochs=10)
    memory.remember([OLD.train.images / 255], forward=lambda model, x: model(x, task=0))
    save_model(model, str(folder / "model.safetensors"))
    memory.save(folder / "memory.safetensors")
    print(f"A: digits 0-4 {accuracy(model, OLD):.1f} %", flush=True)


def engineer_b(folder: Path) -> None:
    """Load both, train on new data only; the old test set is for looking, not for training."""
    model = MultiHead(MLP(64, width=128), [5, 5])
    load_model(model, folder / "model.safetensors")
    memory = nscl.Memory.load(folder / "memory.safetensors", model)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    memory.protect(optimizer)
    train(model, optimizer, NEW, epochs=10)
    moved = memory.forgetting().total  # treats the last steps first
    print(f"B: digits 0-4 {accuracy(model, OLD):.1f} %, digits 5-9 {accuracy(model, NEW):.1f} %")
    print(f"B: the old loss should have risen by {moved.loss:.4f}, predicted without old data")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if len(sys.argv) > 1:
        engineer_b(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            engineer_a(Path(folder))
            subprocess.run([sys.executable, __file__, folder], check=True)
