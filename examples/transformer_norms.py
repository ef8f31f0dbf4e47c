"""Which ``norms=`` suits the LayerNorms of a transformer: two tasks, each option, several seeds.

python examples/transformer_norms.py digits            the small transformer of small_networks.py
NSCL_DATA=DIR python examples/transformer_norms.py text     MiniLM, as in text_domains.py

The default rule, one thread. All options start from the same model, trained on the first task.
Three seeds of the digits take about a minute of processor time, each seed of MiniLM about six.
"""

import argparse
import copy
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table

import nscl
import small_networks as digits
import text_domains as text
from nscl.data import open_stream
from nscl.models import MultiHead

NORMS = ("ewc", "freeze", "train")


class Scores(NamedTuple):
    """Test accuracies in %: the first task when just learned, then both tasks in the end."""

    learned: float
    old: float
    new: float

    @property
    def acc(self) -> float:
        """The mean over both tasks in the end."""
        return (self.old + self.new) / 2


def learn_digits(seed: int, _: argparse.Namespace) -> Iterator[tuple[str, Scores]]:
    """Digits 0 to 4, then 5 to 9."""
    first, second = open_stream("split-digits-5", tasks=2)
    torch.manual_seed(seed)
    network = digits.NETWORKS["transformer"]
    trained = MultiHead(network.build(), [5, 5])
    digits.train(trained, torch.optim.Adam(trained.parameters(), lr=network.lr), first)
    learned = digits.accuracy(trained, first)
    for norms in NORMS:
        torch.manual_seed(seed)
        model = copy.deepcopy(trained)
        optimizer = torch.optim.Adam(model.parameters(), lr=network.lr)
        memory = nscl.Memory(model, norms=norms)  # type: ignore[arg-type]
        with memory.protect(optimizer):
            batches = (first.train.images / 255).split(digits.BATCH)
            memory.remember(batches, forward=lambda model, images: model(images, 0))
            digits.train(model, optimizer, second)
        old, new = digits.accuracy(model, first), digits.accuracy(model, second)
        yield norms, Scores(learned, old, new)


def learn_text(seed: int, args: argparse.Namespace) -> Iterator[tuple[str, Scores]]:
    """Two domains of CLINC150."""
    tokenizer, encoder = text.load_encoder()
    first, second = text.load_domains(text.find_data(args.data), tokenizer, 2)
    torch.manual_seed(seed)
    trained = text.Classifier(encoder, encoder.config.hidden_size, [15, 15])
    text.train(trained, _adamw(trained, 0), first, 0, epochs=args.epochs)
    learned = text.accuracy(trained, first, 0)
    for norms in NORMS:
        torch.manual_seed(seed)
        model = copy.deepcopy(trained)
        memory = nscl.Memory(model, norms=norms)  # type: ignore[arg-type]
        optimizer = _adamw(model, 1)
        with memory.protect(optimizer):
            text.remember(memory, first, 0)
            text.train(model, optimizer, second, 1, epochs=args.epochs)
        old, new = text.accuracy(model, first, 0), text.accuracy(model, second, 1)
        yield norms, Scores(learned, old, new)


def _adamw(model: text.Classifier, task: int) -> torch.optim.Optimizer:
    rates = argparse.Namespace(head_lr=2e-3)
    return torch.optim.AdamW(text.groups(model, task, rates), lr=2e-4, weight_decay=0.0)


LEARN: dict[str, Callable[[int, argparse.Namespace], Iterator[tuple[str, Scores]]]] = {
    "digits": learn_digits,
    "text": learn_text,
}


def measure(args: argparse.Namespace) -> dict[str, list[Scores]]:
    """All scores by option, one for each seed."""
    found: dict[str, list[Scores]] = {norms: [] for norms in NORMS}
    for seed in range(args.seeds):
        for norms, scores in LEARN[args.model](seed, args):
            found[norms].append(scores)
            print(f"seed {seed}, {norms}:", *(f"{value:.1f}" for value in scores), flush=True)
    return found


def show(found: dict[str, list[Scores]]) -> None:
    table = Table("norms", "ACC in %", "old task", "new task", "forgotten")
    for norms, scores in found.items():
        accs = [s.acc for s in scores]
        spread = f" ± {stdev(accs):.1f}" if len(accs) > 1 else ""
        old, new = mean(s.old for s in scores), mean(s.new for s in scores)
        forgotten = mean(s.learned - s.old for s in scores)
        table.add_row(
            norms, f"{mean(accs):.1f}{spread}", f"{old:.1f}", f"{new:.1f}", f"{forgotten:.1f}"
        )
    Console().print(table)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", choices=sorted(LEARN))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=1, help="of the text domains")
    parser.add_argument("--data", default=os.environ.get("NSCL_DATA"), help="default: $NSCL_DATA")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all scores")
    return parser.parse_args()


if __name__ == "__main__":
    args = read_options()
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)  # not after all the training
    torch.set_num_threads(1)
    results: dict[str, Any] = measure(args)
    show(results)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
