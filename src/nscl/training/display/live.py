"""The live view of a run on a terminal: tasks, epochs, loss, what the method does, time left."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live as RichLive
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from nscl.data.tasks import TaskStream
from nscl.methods.base import Phase
from nscl.results import Result
from nscl.training.checkpoint import Place
from nscl.training.config.schema import RunConfig
from nscl.training.display.display import Quiet
from nscl.training.display.notes import notes
from nscl.training.display.tally import Tally

METHOD_FIGURES = {"free": "{:.0%} free", "drift": "old outputs moved by {:.2g}"}


class Live(Quiet):
    """A bar for all epochs, one for the current epoch, and the accuracy matrix as it grows."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
        )
        self.rows: list[list[float]] = []
        self.began = time.perf_counter()
        self.total = 1
        self.first_done = 0.0
        self.remarked = False

    def start(self, config: RunConfig, stream: TaskStream, place: Place, folder: Path) -> None:
        """Open the view."""
        self.total, self.optim = len(stream), config.optim
        self.first_done = place.task + place.epoch / config.optim.epochs_of(place.task)
        self.console.print(f"[bold]{config.method}[/] on [bold]{config.benchmark}[/] → {folder}")
        for note in notes(config, stream):
            self.console.print(f"[dim]{escape(note)}[/]")
        self.overall = self.progress.add_task("all tasks", total=self.total, note="")
        self.current = self.progress.add_task("", total=1, note="")
        self.live = RichLive(self._view(), console=self.console, refresh_per_second=4)
        self.live.start()

    def step(self, place: Place, phase: Phase, epochs: int, tally: Tally, batches: int) -> None:
        """Move the bars."""
        task, epoch = place.task, place.epoch
        share = (epoch + tally.steps / batches) / epochs
        means = tally.means()
        self.progress.update(self.overall, completed=task + share, note=self._left(task + share))
        self.progress.update(
            self.current,
            description=f"task {task + 1} {phase.name} {epoch + 1}/{epochs}",
            completed=tally.steps / batches,
            note=f"loss {means['loss']:.3f}  accuracy {means['accuracy']:.1f} %  {self.figures}",
        )

    figures = ""

    def _left(self, done: float) -> str:
        if done - self.first_done < 0.02:
            return ""
        started, now, end = map(self.optim.epochs_before, (self.first_done, done, self.total))
        seconds = (time.perf_counter() - self.began) / (now - started) * (end - now)
        return f"about {seconds / 60:.1f} min left"

    def epoch(self, record: dict[str, Any]) -> None:
        """Keep what the method reports."""
        self.figures = "  ".join(
            text.format(record[f"method/{name}"])
            for name, text in METHOD_FIGURES.items()
            if f"method/{name}" in record
        )

    def task(self, record: dict[str, Any]) -> None:
        """Add a row to the matrix."""
        self.rows.append(record["accuracies"])
        self.live.update(self._view())
        if record.get("remarks") and not self.remarked:  # once; the result has them all
            self.remarked = True
            self._remarks(record["remarks"])

    def finish(self, result: Result) -> None:
        """Close the view with the figures."""
        self.live.stop()
        self.console.print(
            f"ACC [bold]{result.acc:.2f} %[/]  BWT [bold]{result.bwt:+z.2f}[/]  "
            f"forgetting {result.forgetting:.2f}  in {result.seconds:.1f} s"
        )
        self._remarks(result.remarks)

    def _remarks(self, remarks: Iterable[str]) -> None:
        for remark in remarks:
            self.console.print(f"[bold]remark:[/] {escape(remark)}")

    def stop(self) -> None:
        """Give the terminal back."""
        if hasattr(self, "live"):
            self.live.stop()

    def _view(self) -> Group:
        table = Table(box=None, pad_edge=False)
        if self.rows:
            table.add_column("after task")
            for j in range(len(self.rows[-1])):
                table.add_column(f"{j + 1}", justify="right")
        for i, row in enumerate(self.rows):
            table.add_row(f"{i + 1}", *(f"{value:.1f}" for value in row))
        return (
            Group(self.progress, "\naccuracy on each task", table)
            if self.rows
            else Group(self.progress)
        )
