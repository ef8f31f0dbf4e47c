"""What is shown: progress from files, time left, plain lines, JSON, the live table, the summary."""

import io
import json
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from nscl.engines.board import NO_LIMIT, Board, JsonBoard, LinesBoard
from nscl.engines.execute import Outcome
from nscl.engines.job import Ending
from nscl.engines.live_board import LiveBoard
from nscl.engines.local import last_words
from nscl.engines.progress import Forecast, Progress, Watch, progress_of
from nscl.engines.summary import footnotes, summarise, table
from tests.engines.jobs import epoch, finish, job, task_end, write_metrics


def test_progress_counts_tasks_and_epochs(tmp_path: Path) -> None:
    one = job(tmp_path, optim={"epochs": 4})  # three tasks
    assert progress_of(one, []).share == 0
    begun = progress_of(one, [epoch(0, 0, 2.0), epoch(0, 1, 4.0)])
    assert begun.share == pytest.approx(0.5 / 3)
    assert begun.total_seconds == pytest.approx(24.0)
    records = [epoch(0, i, float(i)) for i in range(8)]  # four epochs of a further phase
    later = progress_of(one, [*records, task_end(0, 90.0, 8.0), epoch(1, 0, 1.0)])
    assert later.share == pytest.approx((1 + 1 / 8) / 3)
    assert (later.seconds, later.acc, later.tasks) == (9.0, 90.0, 1)


def test_time_left_by_its_like_or_its_own_pace(tmp_path: Path) -> None:
    done, going, waiting, other = (job(tmp_path, seed=s) for s in range(4))
    other = job(tmp_path, "other", seed=4)
    write_metrics(done, [task_end(i, 90.0, 10.0) for i in range(3)])
    write_metrics(going, [task_end(0, 90.0, 12.0)])
    write_metrics(other, [task_end(0, 90.0, 2.0)])
    runs = [done, going, waiting, other]
    forecast = Forecast(Watch())
    assert forecast.left(going, runs) == pytest.approx(18.0)
    assert forecast.left(waiting, runs) == pytest.approx(30.0)
    assert forecast.left(other, runs) == pytest.approx(4.0)
    assert forecast.all_left([going, waiting], runs, slots=2) == pytest.approx(24.0)
    assert forecast.all_left([going, waiting], runs, slots=1) == pytest.approx(48.0)


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


def test_the_table_is_the_mean_and_sample_deviation_over_seeds(tmp_path: Path) -> None:
    jobs = [job(tmp_path, "gem", seed=s) for s in range(3)]
    jobs.append(job(tmp_path, "plain", seed=7))
    for i, made in enumerate(jobs[:2]):
        finish(made, [[90.0], [80.0 + 4 * i, 70.0]], 5.0 + i, stores="data")
    finish(jobs[3], [[50.0]], 2.0)
    gem, plain = summarise(jobs)
    assert gem.seeds == (0, 1)
    assert gem.figures["acc"].mean == pytest.approx(76.0)
    assert gem.figures["acc"].std == pytest.approx(statistics.stdev([75.0, 77.0]))
    assert gem.figures["bwt"].mean == pytest.approx(-8.0)
    console = Console(file=io.StringIO(), width=160)
    console.print(table([gem, plain], expected={"gem": {"acc": 76.5}}))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "gem*" in text
    assert "plain " in text
    assert "76.00 ± 1.41" in text
    assert "ACC 76.5" in text
    noted = replace(gem, remarks=("images kept per class 5",))
    assert footnotes([noted, plain]) == ["* keeps old data", "images kept per class 5: gem"]
    assert footnotes([plain]) == []


def test_the_table_folds_no_figure_on_a_narrow_screen(tmp_path: Path) -> None:
    for label in ("instaparam", "Ratio 30, float32 and literal"):
        jobs = [job(tmp_path / label, label, seed=s) for s in range(2)]
        for i, made in enumerate(jobs):
            finish(made, [[90.0], [80.0 + 4 * i, 70.0]], 65.0 + i)
        console = Console(file=io.StringIO(), width=80)
        rows = summarise(jobs)
        told = {label: {"acc": 76.5, "bwt": -8.25}}
        console.print(table(rows, width=80))
        console.print(table(rows, expected=told, width=80))
        lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert len(lines) == 4
        assert all(len(line) <= 80 for line in lines)
        assert all(f"{label} " in line and "76.00 ± 1.41" in line for line in lines[1::2])
        assert "-8.00 ± 2.83" in lines[1]
        assert "…" not in "".join(lines)


@pytest.mark.parametrize("width", [26, 40, 60, 70, 80, 120])
@pytest.mark.parametrize(
    "labels",
    [
        [f"adam-nscl a={a} lr=0.001 norms=freeze rule=ratio literal=true" for a in (10, 30)],
        [f"{'of a very long name ' * 9}{end}" for end in ("one", "two")],
        [f"{'x' * 90}{letter}{'y' * 90}" for letter in "ab"],
    ],
)
def test_long_labels_give_way_to_figures_and_stay_apart(
    tmp_path: Path, width: int, labels: list[str]
) -> None:
    places = [(label, tmp_path / str(i)) for i, label in enumerate(labels)]
    jobs = [job(place, label, seed=s) for label, place in places for s in range(2)]
    for i, made in enumerate(jobs):
        finish(made, [[90.0], [80.0 + 4 * (i % 2), 70.0]], 65.0 + i % 2)
    console = Console(file=io.StringIO(), width=width)
    console.print(table(summarise(jobs), expected={}, width=width))
    head, *rows = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "ACC %" in head
    assert ("BWT" in head) == (width >= 40)
    assert ("seconds" in head) == (width >= 120)
    assert all(len(row) <= width and "76.00 ± 1.41" in row for row in rows)
    shown = [row[: row.index("76.00")] for row in rows]
    assert shown[0] != shown[1]
    assert all(name[:3] in labels[0] for name in shown)


def test_a_damaged_log_is_no_progress(tmp_path: Path) -> None:
    done, going = (job(tmp_path, seed=s) for s in range(2))
    for made in (done, going):
        write_metrics(made, [task_end(0, 90.0, 12.0)])
    for line in ("garbage", '{"acc": 1}', '{"kind": "epoch"}', '{"kind": "task", "seconds": "x"}'):
        with done.directory.metrics_path.open("a") as log:
            log.write(f"{line}\n")
        watch = Watch()
        assert watch(done) == Progress()
        assert Forecast(watch).all_left([going], [done, going], slots=1) == pytest.approx(24.0)
        write_metrics(done, [])


def test_brackets_in_a_plans_names_are_no_markup(tmp_path: Path) -> None:
    made = job(tmp_path, "Ratio [a=30], [bold]")
    finish(made, [[50.0]], 2.0)
    console = Console(file=io.StringIO(), width=160)
    console.print(table(summarise([made])))
    assert "Ratio [a=30], [bold] " in console.file.getvalue()  # type: ignore[attr-defined]


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


def test_a_run_of_another_process_is_told_once(
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


def test_exit_codes(tmp_path: Path) -> None:
    made = job(tmp_path)
    done, failed = Ending(made, "done"), Ending(made, "failed", "x")
    assert Outcome((done,)).exit_code == 0
    assert Outcome((done, failed)).exit_code == 2
    assert Outcome((done, failed), signal=2).exit_code == 130


def test_last_words_are_the_errors_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = "nscl: an older attempt\n"
    log.write_text(first + "task 1\nnscl: the reason\nnoise after it\n")
    assert last_words(log, offset=len(first)) == "the reason"
    log.write_text("Traceback ...\nValueError: bad\n\n")
    assert last_words(log) == "ValueError: bad"
    log.write_text("")
    assert last_words(log) == "it ended without a word"
