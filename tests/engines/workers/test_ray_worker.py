"""One run in a Ray worker: how it ended is returned, its output stands in its log."""

import os
import platform
import sys
from pathlib import Path

import pytest

from nscl.engines.job import Job
from nscl.engines.workers.ray_worker import train
from nscl.results import RunLock
from tests.engines.jobs import job
from tests.runs import small

BROKEN = """
from nscl.methods.base import Method


class Broken(Method):
    def start_task(self, task):
        raise ValueError("no good")
"""


def test_a_run_of_another_process_is_no_failed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    made = job(tmp_path)
    made.directory.path.mkdir()
    with RunLock(made.directory.lock_path):
        state, error = train(made.config.model_dump_json(), str(made.log), str(tmp_path))
    assert state == "locked"
    assert f"is being worked on by process {os.getpid()} " in error


@pytest.mark.parametrize(
    ("method", "lr", "state", "error", "words"),
    [
        ("finetune", 1e-2, "done", "", "ACC"),
        ("finetune", 1e30, "failed", "lower the learning rate", "nscl: "),
        ("own_broken:Broken", 1e-2, "failed", "ValueError: no good", "Traceback"),
    ],
)
def test_how_a_run_ended_is_returned_and_its_log_tells_why(
    method: str,
    lr: float,
    state: str,
    error: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "own_broken.py").write_text(BROKEN)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    given = {"data": {"first": 1}, "optim": {"epochs": 1, "lr": lr}}
    made = Job(small(method, tmp_path, **given), "x")
    found = train(made.config.model_dump_json(), str(made.log), str(tmp_path))
    assert found[0] == state
    assert error in found[1]
    log = made.log.read_text()
    assert log.startswith(f"running on {platform.node()}\n")
    assert words in log
