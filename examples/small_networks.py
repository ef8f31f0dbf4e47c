"""Three small networks learn digits 0 to 4, then 5 to 9, with and without protection.

python examples/small_networks.py           scikit-learn's digits, no download; 3 seeds
python examples/small_networks.py --grid    strengths of Penalty and Budget beside the default

An MLP, a convolutional network with BatchNorm and a transformer that reads an image row by row. All
rows of the table have the same data, the same steps and the same first task.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import nscl
from nscl.data import Task, open_stream
from nscl.models import MLP, ConvNet, MultiHead

EPOCHS, BATCH = 30, 32


class RowTransformer(nn.Module):
    """A transformer for which an image is a sequence of eight rows of eight pixels."""

    def __init__(self, width: int = 32, depth: int = 2) -> None:
        super().__init__()
        self.embed, self.position = nn.Linear(8, width), nn.Embedding(8, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.norm, self.out_features = nn.LayerNorm(width), width

    def forward(self, images: Tensor) -> Tensor:
        """The mean over the rows."""
        x = self.embed(images[:, 0]) + self.position(torch.arange(8).expand(len(images), 8))
        for layer in self.layers:
            x = layer(x)
        pooled: Tensor = self.norm(x).mean(1)
        return pooled


class Network(NamedTuple):
    """A backbone and the rate that suits it."""

    build: Callable[[], nn.Module]
    lr: float


NETWORKS = {
    "MLP": Network(lambda: MLP(64, width=128), 5e-3),
    "CNN": Network(lambda: ConvNet(1, width=16), 5e-3),
    "transformer": Network(RowTransformer, 2e-3),
}
# None: no memory. The number is the weight of distillation.
PROTECTIONS: dict[str, tuple[dict[str, Any] | None, float]] = {
    "fine-tuning": (None, 0.0),
    "Ratio(10), the paper's": ({"rule": nscl.Ratio(10.0)}, 0.0),
    "Energy(0.05)": ({"rule": nscl.Energy(0.05)}, 0.0),
    "Tolerance(1e-3)": ({"rule": nscl.Tolerance(1e-3)}, 0.0),
    "Memory(model)": ({}, 0.0),
    "Memory(model) + recall": ({}, 1.0),
}


GRID: dict[str, tuple[dict[str, Any] | None, float]] = {
    "fine-tuning": (None, 0.0),
    **{f"Penalty({s:g})": ({"rule": nscl.Penalty(s)}, 0.0) for s in (1.0, 3.0, 5.0, 10.0, 30.0)},
    **{f"Budget({d:g})": ({"rule": nscl.Budget(d)}, 0.0) for d in (3e-4, 1e-3, 3e-3, 0.01)},
}


class Scores(NamedTuple):
    """Test accuracies in %: the first task when just learned, then both tasks in the end."""

    learned: float
    old: float
    new: float


def train(
    model: MultiHead,
    optimizer: torch.optim.Optimizer,
    task: Task,
    memory: nscl.Memory | None = None,
    kd: float = 0.0,
) -> None:
    model.train()
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(task.train)).split(BATCH):
            images, labels = task.train.images[batch] / 255, task.train.labels[batch]
            features = model.backbone(images)
            loss = cross_entropy(model.head(task.index)(features), labels)
            if memory is not None and kd:
                old = model.head(0)(features)
                loss = loss + kd * nscl.distillation(old, memory.recall(images, 0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@torch.no_grad()
def accuracy(model: MultiHead, task: Task) -> float:
    model.eval()
    right = model(task.test.images / 255, task.index).argmax(1) == task.test.labels
    return 100 * float(right.float().mean())


def learn(network: Network, options: dict[str, Any] | None, kd: float, seed: int) -> Scores:
    first, second = open_stream("split-digits-5", tasks=2)
    torch.manual_seed(seed)
    model = MultiHead(network.build(), [5, 5])
    optimizer = torch.optim.Adam(model.parameters(), lr=network.lr)
    train(model, optimizer, first)
    learned, memory = accuracy(model, first), None
    if options is not None:
        memory = nscl.Memory(model, **options)
        memory.protect(optimizer)
        batches = (first.train.images / 255).split(BATCH)
        memory.remember(batches, forward=lambda model, images: model(images, 0))
    train(model, optimizer, second, memory, kd)
    if memory is not None:
        memory.flush()
    return Scores(learned, accuracy(model, first), accuracy(model, second))


def row(scores: list[Scores]) -> list[str]:
    """Mean accuracy of both tasks with its deviation, what was forgotten, the new task."""
    means = [(s.old + s.new) / 2 for s in scores]
    spread = f" ± {stdev(means):.1f}" if len(means) > 1 else ""
    forgotten = mean(s.learned - s.old for s in scores)
    return [f"{mean(means):.1f}{spread}", f"{forgotten:.1f}", f"{mean(s.new for s in scores):.1f}"]


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3, help="0, 1, ... up to this many")
    parser.add_argument("--grid", action="store_true", help="strengths in place of other rules")
    parser.add_argument("--network", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all accuracies")
    return parser.parse_args()


def measure(name: str, args: argparse.Namespace) -> dict[str, list[Scores]]:
    """Every protection on one network, seed by seed."""
    return {
        label: [learn(NETWORKS[name], options, kd, seed) for seed in range(args.seeds)]
        for label, (options, kd) in (GRID if args.grid else PROTECTIONS).items()
    }


if __name__ == "__main__":
    torch.set_num_threads(1)  # such small matrices gain nothing from a second one
    args = read_options()
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)  # not after all the training
    results = {network: measure(network, args) for network in args.network}
    table = Table("network", "in %", "mean", "forgotten", "new task")
    for network, rows in results.items():
        for label, scores in rows.items():
            table.add_row(network, label, *row(scores))
        table.add_section()
    Console().print(table)
    if args.json:
        written = {
            network: {label: [s._asdict() for s in scores] for label, scores in rows.items()}
            for network, rows in results.items()
        }
        args.json.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
