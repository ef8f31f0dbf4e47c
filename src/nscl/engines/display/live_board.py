"""The live table of many runs on a terminal: one row per run, progress, figures, time left."""

import time
from collections.abc import Mapping, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nscl.engines.display.board import Board
from nscl.engines.display.text import count_runs, format_seconds, shorten
from nscl.engines.job import Ending, Job

REFRESH = 0.5  # seconds
OTHER_LINES = 8  # of the screen, which are not rows
COLUMNS = ("run", "state", "progress", "task", "ACC", "BWT", "time", "left")
EXPENDABLE = ("time", "BWT", "progress", "ACC", "task", "left")  # dropped in this order
GAP, NAME = 2, 22  # between columns; least width of a longer name
BAR, SHORT_BAR = 24, 8
IMPORTANCE = {"running": 0, "failed": 1, "killed": 1, "stopped": 1, "waiting": 2, "done": 3}
STYLES = {"running": "cyan", "failed": "red", "killed": "red", "stopped": "yellow",
          "waiting": "dim", "done": "green"}  # fmt: skip


class LiveBoard(Board):
    """Redrawn twice a second; runs that do not fit on the screen are count_runs."""

    def __init__(self, *, slots: int = 1, console: Console | None = None) -> None:
        super().__init__(slots=slots)
        self.console = console or Console(highlight=False)
        self._live = Live(console=self.console, auto_refresh=False)
        self._drawn = 0.0

    def start(self, runs: Sequence[Job]) -> None:
        """Open the table."""
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
        most = max(3, self.console.size.height - OTHER_LINES)
        # Sorted by importance only where not all rows fit.
        shown = self.runs
        if len(shown) > most:
            shown = sorted(shown, key=lambda job: IMPORTANCE[self.states[job.name]])[:most]
        hidden = len(self.runs) - len(shown)
        more = f"… and {count_runs(hidden).replace(' ', ' more ')}\n" if hidden else ""
        left = format_seconds(self.seconds_left())
        foot = (
            f"{more}{self.count('done')} of {len(self.runs)} done, {self.count('running')} running"
            + (f", about {left} left" if left else "")
        )
        return Group(self._table(shown), Text(foot, style="bold"))

    def _table(self, shown: Sequence[Job]) -> Table:
        rows = [self._cells(job) for job in shown]
        natural = {name: max([len(name), *(len(row[name]) for row in rows)]) for name in COLUMNS}
        widths = fitted_widths({**natural, "progress": BAR}, self.console.size.width)
        table = Table(box=None, pad_edge=False)
        for name, width in widths.items():
            plain = name in ("run", "state", "progress")
            table.add_column(name, justify="left" if plain else "right", no_wrap=True, width=width)
        for job, cells in zip(shown, rows, strict=True):
            table.add_row(*(self._drawn_cell(job, cells, n, w) for n, w in widths.items()))
        return table

    def _cells(self, job: Job) -> dict[str, str]:
        state, now = self.states[job.name], self.watch(job)
        left = self.forecast.left(job, self.runs) if state == "running" else None
        return {
            "run": job.title,
            "state": state,
            "progress": "",
            "task": f"{now.tasks}/{job.tasks}",
            "ACC": "" if now.acc is None else f"{now.acc:.1f}",
            "BWT": "" if now.bwt is None else f"{now.bwt:+z.1f}",
            "time": format_seconds(now.seconds) if now.seconds else "",
            "left": format_seconds(left),
        }

    def _drawn_cell(
        self, job: Job, cells: Mapping[str, str], name: str, width: int
    ) -> Text | ProgressBar:
        if name == "progress":
            return ProgressBar(
                total=1.0,
                completed=self.watch(job).share,
                width=width,
                style="dim",
                complete_style="cyan",
                finished_style="green",
            )
        style = STYLES[cells["state"]] if name == "state" else ""
        return Text(shorten(cells[name], width), style=style)


def fitted_widths(natural: Mapping[str, int], width: int) -> dict[str, int]:
    """Columns and widths that fit a screen: names and the bar shrink first, then columns go.

    >>> fitted_widths({"run": 40, "state": 7, "progress": 24, "left": 6}, 60)
    {'run': 33, 'state': 7, 'progress': 8, 'left': 6}
    >>> fitted_widths({"run": 40, "state": 7, "progress": 24, "left": 6}, 40)
    {'run': 23, 'state': 7, 'left': 6}
    """
    shown, least = dict(natural), min(NAME, natural["run"])
    for gone in ("", *EXPENDABLE):
        shown.pop(gone, None)
        others = sum(n for name, n in shown.items() if name not in ("run", "progress"))
        free = width - others - GAP * (len(shown) - 1)
        bar = min(SHORT_BAR, shown.get("progress", 0))
        if free - bar >= least:
            break
    shown["run"] = max(1, min(natural["run"], free - bar))
    if "progress" in shown:
        shown["progress"] = min(BAR, free - shown["run"])
    return shown
