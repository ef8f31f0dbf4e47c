"""A finished run's result, and real child processes."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nscl.metrics import AccuracyMatrix
from nscl.results import Result, RunDirectory


@pytest.fixture
def make_result() -> Callable[..., Result]:
    def make(**changes: Any) -> Result:
        fields: dict[str, Any] = {
            "directory": "split-digits-5-ewc-0-0123abcd",
            "benchmark": "split-digits-5",
            "method": "ewc",
            "preset": "quick",
            "seed": 0,
            "accuracy": AccuracyMatrix([[80.1, None], [70.3, 1e2 / 3]]),
            "seconds": 12.5,
            "seconds_per_task": (6.0, 6.5),
            "seconds_per_step": 0.01,
            "steps": 1250,
            "peak_memory_bytes": 10**9,
            "state_bytes": 2000,
            "model_bytes": 1000,
            "stores": "parameters",
            "config": {"epochs": 2, "optim": {"lr": 1e-3, "betas": [0.9, 0.999]}},
            "environment": {"python": "3.11.2", "torch": None},
            "notes": {"fisher": "true"},
        }
        return Result(**fields | changes)

    return make


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., RunDirectory]:
    def make(root: Path = tmp_path / "runs", **changes: Any) -> RunDirectory:
        options: dict[str, Any] = {
            "benchmark": "split-digits-5",
            "method": "ewc",
            "seed": 0,
            "config": {"epochs": 2, "optim": {"lr": 1e-3, "betas": [0.9, 0.999]}},
            "environment": {"python": "3.11.2"},
        }
        return RunDirectory.create(root, **options | changes)

    return make


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start Python code in a child that is certainly gone when the test ends."""
    children: list[subprocess.Popen[str]] = []

    def run(code: str, *arguments: object, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [*prefix, sys.executable, "-c", code, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        children.append(child)
        return child

    yield run
    for child in children:
        # The whole session: a child of the child would keep the pipes open.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
