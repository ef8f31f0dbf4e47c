"""Task 1 of the authors' 10-split CIFAR-100 run, to set beside their released log.

    NSCL_DATA=... python experiments/official_task1.py --epochs 3

Full-width ResNet-18, preset ``official``; per-sample covariances after the last epoch. Takes about
ten minutes per epoch on two cores, and as long again for the spectra. Resumable: run it again.
"""

import argparse
import contextlib
from pathlib import Path
from typing import Any

import nscl
from nscl.results import read_metrics, spectra
from nscl.training.display import Lines
from nscl.training.prepare import build_config


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
    arguments = parser.parse_args()
    config = build_config(
        "split-cifar100-10",
        {
            "preset": "official",
            "optim": {"epochs": arguments.epochs},
            "options": {"features": "per_sample"},
            "data": {"first": 2},
            "out": arguments.out,
        },
    )
    with contextlib.suppress(FirstTaskDone):
        nscl.run(config, display=UntilFirstTask())
    runs = arguments.out.glob("split-cifar100-10-adam-nscl-0-*")
    show(max(runs, key=lambda path: path.stat().st_mtime))


def show(folder: Path) -> None:
    """Print what the authors' log has: loss and accuracy per epoch, free directions per layer."""
    for record in read_metrics(folder / "metrics.jsonl"):
        if record["kind"] == "epoch":
            figures = [record[name] for name in ("loss", "accuracy", "test_accuracy")]
            print(f"epoch {record['epoch'] + 1}:", *(f"{value:.4f}" for value in figures))
    for layer, pair in spectra.read(folder / "spectra.npz")[0].items():
        values, weights = pair["eigenvalues"], pair["weights"]
        share = float((values * weights).sum() / values.sum())
        print(f"{layer:32s} {values.size:5d} {int(weights.sum()):5d} "
              f"{weights.mean():.4f} {values.max() / values.min():.4g} {share:.4g}")  # fmt: skip


if __name__ == "__main__":
    main()
