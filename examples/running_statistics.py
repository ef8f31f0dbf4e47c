"""When should BatchNorm's running statistics be frozen? The new task's pictures differ ever more.

python examples/running_statistics.py           scikit-learn's digits, no download; 5 seeds
python examples/running_statistics.py --json PATH

A small convolutional network learns digits 0 to 4, then 5 to 9, under ``nscl.Memory(model)``. The
pictures of the second task are washed out: contrast times ``1 - w``, brightness plus ``w``. Each
row trains twice from the same first task, with ``statistics="update"`` and with ``"freeze"``; the
shift is the one that ``memory.forgetting()`` reports, of the layer where it is largest.
"""

import argparse
import copy
import json
from pathlib import Path
from statistics import mean
from typing import Literal, NamedTuple, get_args

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import cross_entropy

import nscl
from nscl.data import Task, open_stream
from nscl.models import ConvNet, MultiHead

EPOCHS, BATCH, RATE = 30, 32, 5e-3
WASHES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)

Mode = Literal["update", "freeze"]  # of Memory's statistics


class Outcome(NamedTuple):
    """Test accuracies of both tasks in the end, in %, and the largest shift of a layer, in σ."""

    old: float
    new: float
    shift: float


Results = dict[Mode, dict[float, list[Outcome]]]


def pictures(images: Tensor, wash: float) -> Tensor:
    """Pixels between 0 and 1, with less contrast and more brightness the larger ``wash``."""
    return images / 255 * (1 - wash) + wash


def train(model: MultiHead, optimizer: torch.optim.Optimizer, task: Task, wash: float) -> None:
    model.train()
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(task.train)).split(BATCH):
            logits = model(pictures(task.train.images[batch], wash), task.index)
            loss = cross_entropy(logits, task.train.labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@torch.no_grad()
def accuracy(model: MultiHead, task: Task, wash: float) -> float:
    model.eval()
    right = model(pictures(task.test.images, wash), task.index).argmax(1) == task.test.labels
    return 100 * float(right.float().mean())


def learn_first(seed: int) -> MultiHead:
    first, _ = open_stream("split-digits-5", tasks=2)
    torch.manual_seed(seed)
    model = MultiHead(ConvNet(1, width=16), [5, 5])
    train(model, torch.optim.Adam(model.parameters(), lr=RATE), first, 0.0)
    return model


def continue_with(model: MultiHead, statistics: Mode, wash: float, seed: int) -> Outcome:
    first, second = open_stream("split-digits-5", tasks=2)
    torch.manual_seed(seed)
    model = copy.deepcopy(model)
    memory = nscl.Memory(model, statistics=statistics)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    with memory.protect(optimizer):
        batches = pictures(first.train.images, 0.0).split(BATCH)
        memory.remember(batches, forward=lambda model, images: model(images, 0))
        train(model, optimizer, second, wash)
        shift = max(layer.shift for layer in memory.forgetting().statistics)
    return Outcome(accuracy(model, first, 0.0), accuracy(model, second, wash), shift)


def measure(seeds: int) -> Results:
    models = list(enumerate(learn_first(seed) for seed in range(seeds)))
    return {
        mode: {wash: [continue_with(m, mode, wash, seed) for seed, m in models] for wash in WASHES}
        for mode in get_args(Mode)
    }


def show(results: Results) -> None:
    table = Table("washed out", "shift", "update: mean", "old", "new", "freeze: mean", "old", "new")
    for wash in WASHES:
        moving, frozen = (results[mode][wash] for mode in get_args(Mode))
        row = [f"{wash:g}", f"{mean(o.shift for o in moving):.2f} σ"]
        for outcomes in (moving, frozen):
            old, new = mean(o.old for o in outcomes), mean(o.new for o in outcomes)
            row += [f"{(old + new) / 2:.1f}", f"{old:.1f}", f"{new:.1f}"]
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    torch.set_num_threads(1)  # such small matrices gain nothing from a second one
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=5, help="0, 1, ... up to this many")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all outcomes")
    args = parser.parse_args()
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)  # not after all the training
    results = measure(args.seeds)
    show(results)
    if args.json:
        written = {
            mode: {f"{wash:g}": [o._asdict() for o in found] for wash, found in rows.items()}
            for mode, rows in results.items()
        }
        args.json.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
