"""``python -m benchmarks``: measure, print one table, save it as JSON."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import torch
from rich.console import Console

from benchmarks.alone import alone
from benchmarks.catalogue import chosen
from benchmarks.figure import Figure
from benchmarks.machine import facts
from benchmarks.table import as_table, save
from benchmarks.timing import Clock, Stopwatch

LATEST = Path(__file__).parent / "results" / "latest.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for; 1 if a target is missed and ``--strict`` was given."""
    options = _parser().parse_args(arguments)
    console, progress = Console(), Console(stderr=True)
    try:
        entries = chosen(options.only, full=options.full)
    except LookupError as problem:
        progress.print(problem.args[0], style="red")
        return 2
    torch.set_num_threads(options.threads)
    watch, machine = Stopwatch(options.seconds, options.clock), facts()
    figures: list[Figure] = []
    for name, entry in entries.items():
        with progress.status(f"measuring {name} ({len(figures) + 1} of {len(entries)})"):
            figures.append(alone(entry.measure, watch, options.threads))
    console.print(as_table(figures))
    settings = {"clock": options.clock, "seconds": options.seconds, "full": options.full}
    save(options.json, figures, machine, settings)
    console.print(f"{_summary(figures)}; saved as {options.json}", highlight=False)
    return int(options.strict and any(figure.met is False for figure in figures))


def _summary(figures: Sequence[Figure]) -> str:
    promised = [figure for figure in figures if figure.met is not None]
    return f"{sum(bool(f.met) for f in promised)} of {len(promised)} targets met"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="this figure; may be repeated"
    )
    parser.add_argument("--full", action="store_true", help="also what takes many minutes")
    parser.add_argument("--json", type=Path, default=LATEST, metavar="PATH", help="where to save")
    parser.add_argument("--threads", type=int, default=2, help="default: %(default)s")
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="time for each race (default: %(default)s)"
    )
    parser.add_argument(
        "--clock",
        choices=get_args(Clock),
        default="wall",
        help="cpu, with one thread, is steadier on a busy machine (default: %(default)s)",
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 if a target is missed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
