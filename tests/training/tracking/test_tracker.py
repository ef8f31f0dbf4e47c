"""Each record is sent on once, wherever a run was killed; and only to what is installed."""

import importlib.machinery
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from nscl.cli.app import call
from nscl.results import RunDirectory, read_metrics
from nscl.training.config.schema import RunConfig
from nscl.training.experiment import run
from nscl.training.tracking import tracker
from nscl.training.tracking.numbers import numbers
from tests.runs import AtStep, small

Row = tuple[int, int, dict[str, float]]
SHORT = ("split-digits-5", "--data.first", "2", "--epochs", "1")


class Server:
    """What W&B is when it is online: it keeps rows over processes, and knows how many."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.closed = 0

    @property
    def known(self) -> int:
        return self._known

    def connect(self) -> "Server":
        self._known = len(self.rows)
        return self

    def write(self, number: int, steps: int, values: Mapping[str, float]) -> None:
        self.rows.append((number, steps, dict(values)))

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(tracker, "check_library", lambda name: None)
    monkeypatch.setattr("nscl.training.experiment.check_library", lambda name: None)
    monkeypatch.setattr(
        tracker, "_open", lambda name, _: None if name == "none" else server.connect()
    )
    return server


def recorded(config: RunConfig) -> list[Row]:
    """What the run's log has, as the server should have it."""
    rows, steps = list[Row](), 0
    directory = RunDirectory(config.out / config.run_name)
    for number, record in enumerate(read_metrics(directory.metrics_path)):
        steps = record.get("steps", steps)
        rows.append((number, steps, numbers(record)))
    return rows


def without_seconds(rows: list[Row]) -> list[Row]:
    """A row that a killed process sent stays, and the record is trained again."""
    return [
        (n, steps, {k: v for k, v in values.items() if not k.endswith("seconds")})
        for n, steps, values in rows
    ]


def test_a_run_sends_what_its_log_has(server: Server, tmp_path: Path) -> None:
    config = small("nscl", tmp_path, track="wandb", eval_each_epoch=True)
    run(config)
    assert server.rows == recorded(config)
    assert len(server.rows) == 3 * 3 + 2  # new heads are warmed up, except the first
    assert server.closed == 1
    names = {name for _, _, values in server.rows for name in values}
    assert {"epoch/loss", "epoch/accuracy", "epoch/lr/1", "epoch/test_accuracy"} <= names
    assert {"task/accuracies/1", "task/accuracies/3", "task/acc", "task/bwt"} <= names


def test_after_kills_every_record_is_there_once(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    config = small("finetune", tmp_path, track="wandb")
    epoch = run(small("finetune", tmp_path / "whole")).steps // 6
    with monkeypatch.context() as patch:  # between the record of an epoch and its checkpoint
        patch.setattr("nscl.training.progress.Journal.save", lambda *args: kill())
        with pytest.raises(Killed):
            run(config)
    assert len(server.rows) == 1
    with pytest.raises(Killed):
        run(config, display=AtStep(3 * epoch, kill))  # in the first task, already on record
    run(config)
    assert len(server.rows) == 9
    assert without_seconds(server.rows) == without_seconds(recorded(config))


def test_a_run_that_began_without_it_is_complete(server: Server, tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    plain = small("finetune", tmp_path)
    with pytest.raises(Killed):
        run(plain, display=AtStep(40, kill))
    tracked = small("finetune", tmp_path, track="wandb")
    run(tracked)
    assert server.rows == recorded(tracked)
    assert len(server.rows) == 9


def test_a_finished_run_is_sent_once(server: Server, tmp_path: Path) -> None:
    config = small("finetune", tmp_path, data={"first": 1}, optim={"epochs": 1})
    run(config)
    assert server.rows == []
    tracked = config.model_copy(update={"track": "tensorboard"})
    run(tracked)
    assert server.rows == recorded(config)
    (config.out / config.run_name / "tensorboard").mkdir()  # as the library does
    run(tracked)
    assert server.closed == 1


def test_neither_the_name_nor_the_numbers_of_a_run_change(server: Server, tmp_path: Path) -> None:
    plain, tracked = small("nscl", tmp_path / "a"), small("nscl", tmp_path / "b", track="wandb")
    assert plain.run_name == tracked.run_name
    assert plain.identity() == tracked.identity()
    assert "track" not in plain.place()
    assert run(plain).accuracy == run(tracked).accuracy
    record = RunDirectory(tmp_path / "b" / tracked.run_name).identity()
    assert record.environment["track"] == "wandb"


@pytest.mark.parametrize("command", ["run", "compare"])
@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_library_is_one_line_before_anything_is_made(
    command: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, name, None)
    many = ("--methods", "finetune") if command == "compare" else ()
    assert call([command, *SHORT, *many, "--track", name]) == 2
    assert capsys.readouterr().err == (
        f"nscl: --track {name} needs the package {name}: pip install 'nscl[{name}]'\n"
    )
    assert not list(tmp_path.iterdir())


def test_a_folder_of_its_name_is_not_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = importlib.machinery.ModuleSpec("wandb", None, is_package=True)
    monkeypatch.setattr(tracker, "find_spec", lambda name: folder)
    with pytest.raises(tracker.TrackingError, match="needs the package wandb"):
        tracker.check_library("wandb")


def test_nothing_is_imported_unasked() -> None:
    code = (
        "import sys, nscl; nscl.run; nscl.build_config; import nscl.training.experiment; "
        "print([name for name in ('tensorboard', 'wandb') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
