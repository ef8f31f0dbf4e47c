"""The process of one run: its exit codes, and that it ends when its parent does."""

import os
import subprocess
import sys
from pathlib import Path

from nscl.engines.job import Job
from nscl.engines.workers.worker import LOCKED
from nscl.results import RunLock
from tests.engines.jobs import job

SHORT = {"data": {"first": 1}, "optim": {"epochs": 1}}


def start(made: Job) -> subprocess.Popen[str]:
    """The worker with its configuration; its standard input stays open."""
    process = subprocess.Popen(
        [sys.executable, "-m", "nscl.engines.workers.worker"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin
    process.stdin.write(made.config.model_dump_json() + "\n")
    process.stdin.flush()
    return process


def test_a_run_of_another_process_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    made = job(tmp_path, **SHORT)
    made.directory.path.mkdir()
    with RunLock(made.directory.lock_path):
        process = start(made)
        process.wait(240)
    _, errors = process.communicate()
    assert process.returncode == LOCKED
    assert f"is being worked on by process {os.getpid()} " in errors
    assert errors.startswith("nscl: ")


def test_it_ends_with_its_parent_even_before_it_has_begun(tmp_path: Path) -> None:
    made = job(tmp_path, data={"first": 1}, optim={"epochs": 100_000})
    process = start(made)
    assert process.stdin
    process.stdin.close()
    process.stdin = None
    process.communicate(timeout=240)
    assert process.returncode == 143
    assert not made.directory.path.exists()
