"""TensorBoard's files, read back by TensorBoard itself: they have what ``metrics.jsonl`` has."""

import signal
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorboard", reason="pip install 'nscl[tensorboard]'")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.util.tensor_util import make_ndarray

from nscl.cli.app import call
from nscl.results import RunDirectory, read_metrics
from nscl.training.experiment import run
from nscl.training.tracking.numbers import numbers
from tests.runs import nscl, small

Curves = dict[str, list[tuple[int, float]]]
COMMAND = ("split-digits-5", "--data.first", "2", "--epochs", "3", "--batch-size", "8",
           "--threads", "1", "--method", "finetune")  # fmt: skip


def recorded(folder: Path) -> Curves:
    """Curves of the log, in TensorBoard's precision."""
    curves, steps = defaultdict(list), 0
    for record in read_metrics(folder / "metrics.jsonl"):
        steps = record.get("steps", steps)
        for name, value in numbers(record).items():
            curves[name].append((steps, float(np.float32(value))))
    return dict(curves)


def written(folder: Path) -> Curves:
    """Every point of every file, also of those that TensorBoard would not show."""
    curves = defaultdict(list)
    for path in sorted((folder / "tensorboard").iterdir()):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                curves[value.tag].append((event.step, float(make_ndarray(value.tensor))))
    return dict(curves)


def shown(folder: Path) -> Curves:
    accumulator = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {
        name: [(event.step, event.value) for event in accumulator.Scalars(name)]
        for name in accumulator.Tags()["scalars"]
    }


def test_the_files_have_what_the_log_has(tmp_path: Path) -> None:
    config = small("nscl", tmp_path, track="tensorboard", eval_each_epoch=True)
    result = run(config)
    folder = tmp_path / config.run_name
    assert written(folder) == shown(folder) == recorded(folder)
    curves = shown(folder)
    assert [step for step, _ in curves["epoch/loss"]] == sorted(
        step for step, _ in curves["epoch/loss"]
    )
    assert (
        len(curves["epoch/loss"]) == len(curves["epoch/lr/1"]) == 3 * 2 + 2
    )  # new heads are warmed up
    assert curves["task/acc"][-1][1] == pytest.approx(result.acc)
    assert curves["task/acc"][-1][0] == result.steps


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_after_a_stop_and_resume_nothing_is_there_twice(
    number: signal.Signals, tmp_path: Path
) -> None:
    process = nscl("run", *COMMAND, "--track", "tensorboard", cwd=tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if "epoch 2" in line:
            break
    process.send_signal(number)
    process.communicate(timeout=120)
    (folder,) = (tmp_path / "runs").iterdir()
    assert not RunDirectory(folder).is_finished
    assert written(folder)["epoch/loss"]
    again = nscl("resume", str(folder), cwd=tmp_path)  # it knows by itself that it is tracked
    _, errors = again.communicate(timeout=240)
    assert again.returncode == 0, errors
    assert written(folder) == shown(folder) == recorded(folder)
    assert len(recorded(folder)["epoch/loss"]) == 6


def test_compare_tracks_its_runs_and_those_that_were_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    short = ("split-digits-5", "--data.first", "1", "--epochs", "1", "--methods", "finetune")
    assert call(["compare", *short, "--seeds", "1", "--quiet"]) == 0
    (first,) = Path("runs").glob("split-*")
    assert not (first / "tensorboard").exists()
    assert call(["compare", *short, "--seeds", "2", "--quiet", "--track", "tensorboard"]) == 0
    both = list(Path("runs").glob("split-*"))
    assert len(both) == 2
    for folder in both:
        assert written(folder) == recorded(folder)
        assert recorded(folder)
    times = {path: path.stat().st_mtime_ns for path in Path("runs").rglob("events.*")}
    assert call(["compare", *short, "--seeds", "2", "--quiet", "--track", "tensorboard"]) == 0
    assert {path: path.stat().st_mtime_ns for path in Path("runs").rglob("events.*")} == times
