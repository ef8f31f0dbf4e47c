"""``make bench``: one table of ratios, saved as JSON."""

import argparse
import json
import platform
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import core
from benchmarks.figure import Figure
from nscl._version import __version__


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--full", action="store_true", help="also d = 4608 (minutes)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/latest.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    figures = [
        *core.step(),
        *core.remember(),
        *core.decomposition(full=arguments.full),
        *core.resident_bytes(),
        *core.peak_memory(),
    ]
    Console(highlight=False).print(table(figures))
    save(arguments.json, figures, arguments.threads)
    return int(arguments.strict and not all(f.met for f in figures))


def table(figures: list[Figure]) -> Table:
    found = Table(box=None, pad_edge=False)
    for column in ("figure", "ours", "reference", "ratio", "target", ""):
        found.add_column(column, justify="left" if column in ("figure", "") else "right")
    for f in figures:
        verdict = "[green]met[/]" if f.met else "[red]missed[/]"
        found.add_row(f.name, f"{f.ours:,.1f} {f.unit}", f"{f.reference:,.1f} {f.unit}",
                      f"{f.ratio:.2f}", f.target, "" if f.target == "–" else verdict)  # fmt: skip
    return found


def save(path: Path, figures: list[Figure], threads: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "nscl": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": threads,
        "figures": [asdict(figure) for figure in figures],
    }
    path.write_text(json.dumps(content, indent=2) + "\n")
    print(f"saved to {path}")


if __name__ == "__main__":
    sys.exit(main())
