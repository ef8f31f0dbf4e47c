"""The live table on terminals of all sizes."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from nscl.engines.display.live_board import LiveBoard
from nscl.engines.job import Ending
from tests.engines.jobs import job, task_end, write_metrics


def test_the_live_table_shows_what_happens_first(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=14)
    board = LiveBoard(slots=2, console=console)
    jobs = [job(tmp_path, seed=s) for s in range(9)]
    write_metrics(jobs[8], [task_end(0, 91.25, 12.0)])
    board.start(jobs)
    board.begin(jobs[8])
    board.end(Ending(jobs[7], "failed", "it broke"))
    board.tick()
    board.stop()
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "finetune seed 8" in text
    assert "91.2" in text
    assert "24 s" in text  # left: two of three tasks at 12 s
    assert "it broke" in text
    assert "3 more runs" in text


@pytest.mark.parametrize(
    ("width", "heads"),
    [
        (120, "run state progress task ACC BWT time left"),
        (80, "run state progress task ACC BWT time left"),
        (60, "run state progress task ACC left"),
        (30, "run state"),
    ],
)
def test_the_live_table_fits_the_screen(tmp_path: Path, width: int, heads: str) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=width)
    board = LiveBoard(slots=2, console=console)
    labels = ["finetune", "package.methods:Mine norms=freeze a=10", "displacement, Ridge 300"]
    jobs = [job(tmp_path, label, seed=s) for label in labels for s in (0, 10)]
    for made in jobs:
        write_metrics(made, [task_end(0, 91.25, 3000.0)])
    board.start(jobs)
    for made in jobs:
        board.begin(made)
    board.tick()
    text = console.file.getvalue()  # type: ignore[attr-defined]
    board.stop()
    head, *rows = text[text.index("run  ") :].splitlines()[: 1 + len(jobs)]
    assert head.split() == heads.split()
    assert all(len(row) <= width for row in rows)
    for made, row in zip(jobs, rows, strict=True):
        assert row.startswith(made.label[:8])
        assert f"eed {made.config.seed}" in row
        assert " running" in row
        assert ("91.2" in row) == ("ACC" in heads)
        assert ("1.7 h" in row) == ("left" in heads)
