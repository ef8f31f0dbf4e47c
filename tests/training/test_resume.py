"""Runs that cannot be lost: killed at any instant and resumed, they end as if nothing happened."""

import json
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from nscl.methods import METHODS
from nscl.results import RunDirectory, RunLockedError
from nscl.training.config.build import build_config
from nscl.training.experiment import run
from tests.runs import AtStep, nscl, small

COMMAND = ("run", "split-digits-5", "--data.first", "3", "--optim.epochs", "4", "--threads", "1",
           "--optim.batch-size", "8")  # fmt: skip


def only_run(folder: Path) -> Path:
    (found,) = (folder / "runs").iterdir()
    return found


def matrix(folder: Path) -> Any:
    return json.loads((only_run(folder) / "result.json").read_text())["accuracy"]


def epochs(folder: Path) -> list[dict[str, Any]]:
    lines = (only_run(folder) / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    for record in records:
        record.pop("seconds")
    return records


# Its steps take ten times as long as those of others; test_instaparam stops it in every phase.
SLOW = {"instaparam": pytest.mark.slow}


@pytest.mark.parametrize("method", [pytest.param(m, marks=SLOW.get(m, ())) for m in METHODS])
def test_every_method_resumes_bit_for_bit(method: str, tmp_path: Path) -> None:
    """In-process: stop after each epoch in turn, as a kill between two epochs would."""
    whole = run(small(method, tmp_path / "whole"))

    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    quarter = whole.steps // 4
    for stop in (1, quarter, quarter):  # in steps of the process at hand
        with pytest.raises(Killed):
            run(small(method, tmp_path / "broken"), display=AtStep(stop, kill))
    resumed = run(small(method, tmp_path / "broken"))
    assert resumed.accuracy == whole.accuracy
    assert resumed.steps == whole.steps


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    optim = {"epochs": 4, "batch_size": 8}
    given = {"data": {"first": 3}, "optim": optim, "threads": 1, "out": folder / "runs"}
    run(build_config("split-digits-5", given))  # what COMMAND says
    return folder


def finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return output


def test_a_run_killed_by_sigkill_ends_like_an_uninterrupted_one(
    whole: Path, tmp_path: Path
) -> None:
    (tmp_path / "killed").mkdir()
    rng, kills = random.Random(0), 0
    for _ in range(3):
        process = nscl(*COMMAND, cwd=tmp_path / "killed")
        assert process.stdout is not None
        process.stdout.readline()  # it has started
        time.sleep(rng.uniform(0.05, 0.6))
        kills += process.poll() is None
        process.kill()
        process.communicate()
    finish(nscl("resume", str(only_run(tmp_path / "killed")), cwd=tmp_path / "killed"))
    assert kills >= 2
    assert matrix(tmp_path / "killed") == matrix(whole)
    assert epochs(tmp_path / "killed") == epochs(whole)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
def test_ctrl_c_finishes_the_step_saves_and_says_how_to_continue(
    number: signal.Signals, code: int, whole: Path, tmp_path: Path
) -> None:
    process = nscl(*COMMAND, cwd=tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if "epoch 2" in line:
            break
    process.send_signal(number)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == code
    folder = only_run(tmp_path)
    assert f"nscl resume runs/{folder.name}" in errors
    assert not (folder / "result.json").exists()
    assert "resuming" in finish(nscl("resume", f"runs/{folder.name}", cwd=tmp_path))
    assert matrix(tmp_path) == matrix(whole)


def test_a_finished_run_is_skipped_and_another_configuration_gets_another_folder(
    tmp_path: Path,
) -> None:
    first = run(small("finetune", tmp_path))
    written = (tmp_path / first.directory / "result.json").stat().st_mtime_ns
    assert run(small("finetune", tmp_path)).to_dict() == first.to_dict()
    assert (tmp_path / first.directory / "result.json").stat().st_mtime_ns == written
    other = run(small("finetune", tmp_path, seed=1))
    assert other.directory != first.directory


def test_two_processes_on_one_run_the_second_is_refused(tmp_path: Path) -> None:
    config = small("finetune", tmp_path)
    result = run(config)
    directory = RunDirectory(tmp_path / result.directory)
    directory.result_path.unlink()
    with directory.lock(), pytest.raises(RunLockedError):
        run(config)


LATE = """
import json
from pathlib import Path

from nscl.methods.baselines.finetune import Finetune

HIDDEN = Path(__file__).with_name("hidden.json")


class Late(Finetune):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        if HIDDEN.exists():
            name = json.loads(HIDDEN.read_text())["directory"]
            HIDDEN.rename(HIDDEN.with_name(name) / "result.json")
"""


def test_a_run_that_another_process_finished_meanwhile_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look for a result and the lock there are seconds of preparation."""
    (tmp_path / "own_late.py").write_text(LATE)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = small("own_late:Late", tmp_path)
    first = run(config)
    directory = RunDirectory(tmp_path / first.directory)
    directory.result_path.rename(tmp_path / "hidden.json")
    log = directory.metrics_path.read_bytes()
    assert run(config).to_dict() == first.to_dict()
    assert directory.metrics_path.read_bytes() == log
