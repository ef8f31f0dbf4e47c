"""Lightning Fabric: a loop of your own, three lines for the memory, checkpoints that carry it.

python examples/fabric_loop.py          pip install nscl[lab,lightning]
"""

import tempfile
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import Fabric
from torch.nn.functional import cross_entropy

import nscl
from nscl.data import Task, open_stream
from nscl.integrations.resumable import Resumable
from nscl.models import MLP, MultiHead
from two_tasks import accuracy


def train(fabric: Fabric, model: Any, optimizer: Any, task: Task, epochs: int = 10) -> None:
    for _ in range(epochs):
        for batch in torch.randperm(len(task.train)).split(32):
            images, labels = task.train.images[batch] / 255, task.train.labels[batch]
            optimizer.zero_grad()
            fabric.backward(cross_entropy(model(images, task.index), labels))
            optimizer.step()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    first, second = open_stream("split-digits-5", tasks=2)  # digits 0 to 4, digits 5 to 9
    fabric = Fabric(accelerator="cpu", devices=1)
    network = MultiHead(MLP(64, width=128), [5, 5])
    memory = nscl.Memory(network)  # new
    model, optimizer = fabric.setup(network, torch.optim.Adam(network.parameters(), lr=5e-3))
    protection = memory.protect(optimizer)  # new: finds the optimizer inside of Fabric's
    parts = {"model": model, "optimizer": optimizer, "memory": Resumable(memory, protection)}

    train(fabric, model, optimizer, first)
    memory.remember([first.train.images / 255], forward=lambda model, x: model(x, task=0))  # new
    with tempfile.TemporaryDirectory() as folder:
        fabric.save(Path(folder) / "first.ckpt", parts)
        train(fabric, model, optimizer, second)  # say this one went wrong
        fabric.load(Path(folder) / "first.ckpt", parts)  # weights, optimizer and memory as before
    train(fabric, model, optimizer, second)
    memory.flush()
    for task, digits in ((first, "0-4"), (second, "5-9")):
        print(f"digits {digits}: {accuracy(network, task):.1f} %")
