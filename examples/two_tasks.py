"""Two tasks, one network: Adam forgets the first task, Adam with a memory does not.

python examples/two_tasks.py [seed]      scikit-learn's digits, no download, under 60 s on two cores
"""

import sys

import torch
from rich.console import Console
from rich.table import Table
from torch.nn.functional import cross_entropy

import nscl
from nscl.data import Task, open_stream
from nscl.models import MLP, MultiHead

NAMES = ("Adam", "Adam-NSCL, the paper's", "Memory", "Memory + recall")


def train(
    model: MultiHead,
    optimizer: torch.optim.Optimizer,
    task: Task,
    epochs: int = 30,
    recall: nscl.Memory | None = None,
) -> None:
    for _ in range(epochs):
        for batch in torch.randperm(len(task.train)).split(32):
            images, labels = task.train.images[batch] / 255, task.train.labels[batch]
            loss = cross_entropy(model(images, task.index), labels)
            if recall is not None:  # the third line: old answers on new inputs
                loss += nscl.distillation(model(images, 0), recall.recall(images, 0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def accuracy(model: MultiHead, task: Task) -> float:
    right = model(task.test.images / 255, task.index).argmax(1) == task.test.labels
    return 100 * float(right.float().mean())


if __name__ == "__main__":
    torch.set_num_threads(1)  # such small matrices gain nothing from a second one
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    first, second = open_stream("split-digits-5", tasks=2)  # digits 0 to 4, digits 5 to 9
    table = Table("in %", "task 1", "after task 2", "forgotten", "task 2", "mean")
    for name in NAMES:
        torch.manual_seed(seed)
        model = MultiHead(MLP(64, width=128), [5, 5])  # one body, a head for each task
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        memory = nscl.Memory.adam_nscl(model) if "NSCL" in name else nscl.Memory(model)
        protection = memory.protect(optimizer)
        train(model, optimizer, first)
        before = accuracy(model, first)
        memory.remember([first.train.images / 255], forward=lambda model, x: model(x, task=0))
        if name == "Adam":
            protection.remove()  # this memory may look, but not hold
        train(model, optimizer, second, recall=memory if "recall" in name else None)
        memory.flush()  # the last steps may still wait to be treated
        after, new = accuracy(model, first), accuracy(model, second)
        numbers = (before, after, before - after, new, (after + new) / 2)
        table.add_row(name, *(f"{number:5.1f}" for number in numbers))
    Console().print(table)
