"""The live table of many runs on a terminal: one row per run, progress, figures, time left."""

import time
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nscl.engines.board import Board
from nscl.engines.job import Ending, Job
from nscl.engines.progress import spoken

REFRESH = 0.5  # seconds
ROOM = 8  # lines of the screen that are not rows
IMPORTANCE = {"running": 0, "failed": 1, "killed": 1, "stopped": 1, "waiting": 2, "done": 3}
STYLES = {"running": "cyan", "failed": "red", "killed": "red", "stopped": "yellow",
          "waiting": "dim", "done": "green"}  # fmt: skip


class LiveBoard(Board):
    """Redrawn twice a second; runs that do not fit on the screen are counted."""

    def __init__(self, *, slots: int = 1, console: Console | None = None) -> None:
        super().__init__(slots=slots)
        self.console = console or Console(highlight=False)
        self._live = Live(console=self.console, auto_refresh=False)
        self._drawn = 0.0

    def start(self, runs: Sequence[Job]) -> None:
        """Open the picture."""
        super().start(runs)
        if runs:
            self.console.print(self.opening())
            self._live.start()

    def end(self, ending: Ending) -> None:
        """Errors stay on the screen above the table."""
        super().end(ending)
        if ending.error:
            self.say(f"{ending.job.title}: {ending.error}")

    def say(self, text: str) -> None:
        """Print it above the table."""
        self.console.print(text, markup=False)

    def tick(self) -> None:
        """Redraw."""
        if time.monotonic() - self._drawn >= REFRESH:
            self._live.update(self._picture(), refresh=True)
            self._drawn = time.monotonic()

    def stop(self) -> None:
        """Draw the last state and give the terminal back."""
        if self._live.is_started:
            self._live.update(self._picture(), refresh=True)
            self._live.stop()

    def _picture(self) -> Group:
        room = max(3, self.console.size.height - ROOM)
        # What happens now comes first only where not all rows fit.
        shown = self.runs
        if len(shown) > room:
            shown = sorted(shown, key=lambda job: IMPORTANCE[self.states[job.name]])[:room]
        more = (
            f"… and {len(self.runs) - len(shown)} more runs\n"
            if len(shown) < len(self.runs)
            else ""
        )
        left = spoken(self.seconds_left())
        foot = (
            f"{more}{self.count('done')} of {len(self.runs)} done, {self.count('running')} running"
            + (f", about {left} left" if left else "")
        )
        return Group(self._table(shown), Text(foot, style="bold"))

    def _table(self, shown: Sequence[Job]) -> Table:
        table = Table(box=None, pad_edge=False)
        for column in ("run", "state", "progress", "task", "ACC", "BWT", "time", "left"):
            plain = column in ("run", "state", "progress")
            table.add_column(column, justify="left" if plain else "right", no_wrap=True)
        for job in shown:
            self._add(table, job)
        return table

    def _add(self, table: Table, job: Job) -> None:
        state, now = self.states[job.name], self.watch(job)
        left = self.forecast.left(job, self.runs) if state == "running" else None
        table.add_row(
            job.title,
            Text(state, style=STYLES[state]),
            ProgressBar(
                total=1.0,
                completed=now.share,
                width=24,
                style="dim",
                complete_style="cyan",
                finished_style="green",
            ),
            f"{now.tasks}/{job.tasks}",
            "" if now.acc is None else f"{now.acc:.1f}",
            "" if now.bwt is None else f"{now.bwt:+z.1f}",
            spoken(now.seconds) if now.seconds else "",
            spoken(left),
        )
