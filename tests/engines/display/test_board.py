"""Plain lines and JSON while many runs go on."""

import json
from pathlib import Path

import pytest

from nscl.engines.display.board import NO_LIMIT, Board, JsonBoard, LinesBoard
from nscl.engines.job import Ending
from tests.engines.jobs import finish, job, task_end, write_metrics


def test_time_left_is_shared_by_the_runs_that_really_go_on(tmp_path: Path) -> None:
    """A cluster is handed all runs at once and has room for some of them."""
    jobs = [job(tmp_path, seed=s) for s in range(9)]
    write_metrics(jobs[0], [task_end(i, 90.0, 10.0) for i in range(3)])  # 30 s each
    board = Board(slots=NO_LIMIT)
    board.start(jobs)
    assert board.opening().endswith("; as there is room")
    for made in jobs[:3]:
        board.begin(made)
    board.end(Ending(jobs[0], "done"))
    assert (board.count("running"), board.count("waiting")) == (2, 6)
    assert board.seconds_left() == pytest.approx(8 * 30.0 / 3)  # the freed place counts


def test_lines_and_json_tell_the_same_story(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier, good, bad = (job(tmp_path, seed=s) for s in range(3))
    for made in (earlier, good):
        finish(made, [[90.0]], 5.0)
    endings = [Ending(good, "done"), Ending(bad, "failed", "it broke")]
    for board in (LinesBoard(slots=2), JsonBoard(slots=2), Board()):
        board.start([earlier, good, bad])
        for ending in endings:
            board.begin(ending.job)
            board.end(ending)
    output = capsys.readouterr().out
    lines = [line for line in output.splitlines() if not line.startswith("{")]
    assert lines[0] == "3 runs: 2 finished, 0 to be continued, 1 new; 2 at a time"
    assert lines[-1] == "failed finetune seed 2: it broke"
    records = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert [r["kind"] for r in records] == ["plan", "begin", "end", "begin", "end"]
    assert records[2]["acc"] == 90.0
    assert records[4]["error"] == "it broke"


def test_a_run_of_another_process_is_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = job(tmp_path)
    board = LinesBoard()
    board.start([made])
    for _ in range(2):
        board.begin(made)
        board.put_back(Ending(made, "locked", "process 3 is at it"))
    assert board.count("waiting") == 1
    output = capsys.readouterr().out
    assert output.startswith("1 run: 0 finished, ")
    assert output.count("finetune seed 0 is waiting for another process: process 3 is at it") == 1
