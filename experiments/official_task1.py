"""Task 1 of the authors' 10-split CIFAR-100 run, to set beside their released log.

    NSCL_DATA=... python experiments/official_task1.py --epochs 3 [--logs FOLDER]

Full-width ResNet-18, preset ``official`` but for covariances of single samples and the rule as
``nscl.Memory`` has them, after the last epoch. Takes about 25 minutes on one core for three epochs
and the spectra. Resumable: run it again.
"""

import argparse
import contextlib
import csv
from pathlib import Path
from typing import Any

import nscl
from nscl.results import read_metrics, run_name
from nscl.results.records import spectra
from nscl.training.config.build import build_config, complete
from nscl.training.display.display import Lines

# Ours and the log's names of what is compared.
PAIRS = {"loss": "train_loss", "accuracy": "train_acc", "test_accuracy": "val_acc"}


class FirstTaskDone(Exception):  # noqa: N818  (a signal, no failure)
    """The second task is not needed."""


class UntilFirstTask(Lines):
    """Shows plain lines and leaves after the first task."""

    def task(self, record: dict[str, Any]) -> None:
        """Stop here."""
        super().task(record)
        raise FirstTaskDone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--logs", type=Path, help="a folder of tables extracted from the logs")
    arguments = parser.parse_args()
    config = build_config(
        "split-cifar100-10",
        {
            "preset": "official",
            "optim": {"epochs": arguments.epochs},
            "options": {"features": "per_sample", "literal": False},
            "data": {"first": 2},
            "out": arguments.out,
        },
    )
    name = run_name(
        benchmark=config.benchmark,
        method=config.method,
        seed=config.seed,
        config=complete(config).identity(),
    )
    folder = arguments.out / name
    if not (folder / "spectra.npz").exists():
        with contextlib.suppress(FirstTaskDone):
            nscl.run(config, display=UntilFirstTask())
    print(epochs(folder, read_log(arguments.logs, "rehearsal_org", "epochs")))
    print(layers(folder, read_log(arguments.logs, "rehearsal_without_avg", "basis")))


def read_log(folder: Path | None, run: str, table: str) -> list[dict[str, str]]:
    """Rows of task 1 in a table extracted from the authors' logs; none without a folder."""
    if folder is None:
        return []
    with (folder / f"{run}__cifar100-10__{table}.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [row for row in rows if row[next(iter(row))] == "1"]


def epochs(folder: Path, log: list[dict[str, str]]) -> str:
    """Loss and accuracy per epoch, beside the log's."""
    lines = ["| epoch | loss | log | train acc. | log | test acc. | log |", "|" + "---|" * 7]
    for record in read_metrics(folder / "metrics.jsonl"):
        if record["kind"] == "epoch":
            row = log[record["epoch"]] if log else {}
            cells = [
                cell
                for ours, theirs in PAIRS.items()
                for cell in (f"{record[ours]:.3f}", row.get(theirs, "-"))
            ]
            lines.append(f"| {record['epoch'] + 1} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def layers(folder: Path, log: list[dict[str, str]]) -> str:
    """Free directions, condition and R of every layer, beside the log's."""
    lines = ["| layer | features | free | log | condition | log | R | log |", "|" + "---|" * 8]
    for number, (name, pair) in enumerate(spectra.read(folder / "spectra.npz")[0].items()):
        values, weights = pair["eigenvalues"], pair["weights"]
        share = float((values * weights).sum() / values.sum())
        row = log[number] if log else dict.fromkeys(("k_over_h", "cond_lmax_over_lmin", "R"), "nan")
        ours = (f"{weights.mean():.3f}", f"{values.max() / values.min():.2g}", f"{share:.2g}")
        theirs = (
            f"{float(row['k_over_h']):.3f}",
            f"{float(row['cond_lmax_over_lmin']):.2g}",
            f"{float(row['R']):.2g}",
        )
        cells = [cell for pair in zip(ours, theirs, strict=True) for cell in pair]
        lines.append(f"| `{name}` | {values.size} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
