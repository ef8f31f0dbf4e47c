"""``nscl show``: what a run has reached, from its files alone (no torch)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nscl.errors import NsclError
from nscl.metrics import AccuracyMatrix
from nscl.results import RunDirectory, preset_of_record, read_metrics
from nscl.results.records import spectra


def show(run: Path, /) -> int:
    """Show a run: accuracy matrix, ACC, BWT, forgetting, seconds, and a summary of its spectra.

    Parameters
    ----------
    run
        The run's folder; it may still be going on.
    """
    directory = RunDirectory(run)
    if not directory.config_path.exists():
        raise NsclError(f"{run} is not a run: it has no config.json")
    console = Console(highlight=False)
    identity = directory.identity()
    console.print(
        f"[bold]{identity.method}[/] on [bold]{identity.benchmark}[/], seed {identity.seed}, "
        f"preset {preset_of_record(str(identity.config.get('preset', '-')))}"
    )
    rows, seconds, remarks = _rows(directory)
    if not rows:
        console.print("no task is finished yet")
        return 0
    matrix = AccuracyMatrix(tuple(tuple(row) for row in rows))
    console.print("\naccuracy on each task", _matrix_table(rows), "", sep="\n")
    state = "finished" if directory.is_finished else f"{len(rows)} tasks so far"
    console.print(
        f"ACC {matrix.acc:.2f} %   BWT {matrix.bwt:+z.2f}   forgetting {matrix.forgetting:.2f}   "
        f"learning accuracy {matrix.learning_accuracy:.2f} %   {seconds:.1f} s   ({state})"
    )
    for remark in remarks:
        console.print(f"[bold]remark:[/] {escape(remark)}")
    if directory.spectra_path.exists():
        console.print(_spectra_table(directory.spectra_path))
    return 0


def _rows(directory: RunDirectory) -> tuple[list[list[float]], float, Sequence[str]]:
    """The accuracy matrix, the seconds and the remarks so far."""
    if directory.is_finished:
        result = directory.result()
        rows = [[v for v in row if v is not None] for row in result.accuracy.rows]
        return rows, result.seconds, result.remarks
    records: list[dict[str, Any]] = []
    if directory.metrics_path.exists():
        records = [r for r in read_metrics(directory.metrics_path) if r["kind"] == "task"]
    last = records[-1].get("remarks", ()) if records else ()
    return [r["accuracies"] for r in records], sum(r["seconds"] for r in records), last


def _matrix_table(rows: list[list[float]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("after task")
    for j in range(len(rows[-1])):
        table.add_column(str(j + 1), justify="right")
    for i, row in enumerate(rows):
        table.add_row(str(i + 1), *(f"{value:.1f}" for value in row))
    return table


def _spectra_table(path: Path) -> Table:
    found = spectra.read(path)
    last = max(found)
    # A stream's last task is not remembered: nothing comes after it that it had to be held for.
    title = f"spectra of what is held after task {last + 1}"
    table = Table(title=title, title_justify="left", box=None)
    for name in ("layer", "features", "free", "R", "condition"):
        table.add_column(name, justify="left" if name == "layer" else "right")
    for layer, pair in found[last].items():
        values, weights = pair["eigenvalues"], pair["weights"]
        total = float(values.sum())
        positive = values[values > values.max() * values.size * 2.2e-16]
        condition = float(values.max() / positive.min()) if positive.size else 1.0
        table.add_row(
            layer,
            str(values.size),
            f"{float(weights.sum()):.0f}",
            f"{float((weights * values).sum()) / total:.3g}" if total else "0",
            f"{condition:.2g}",
        )
    return table
