"""Small real runs for tests: the digits, few tasks, few epochs."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from nscl.training.config import RunConfig
from nscl.training.prepare import build_config

SMALL: dict[str, Any] = {
    "threads": 1,
    "data": {"first": 3},
    "optim": {"epochs": 2, "batch_size": 32},
}


def small(method: str, out: Path, **said: Any) -> RunConfig:
    from nscl.training.config import merge

    layers = merge(SMALL, {"method": method, "out": out})
    return build_config("split-digits-5", merge(layers, said))


def nscl(*args: str, cwd: Path, **options: Any) -> subprocess.Popen[str]:
    """Start the command line as a real process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    return subprocess.Popen(
        [sys.executable, "-m", "nscl", *args],
        cwd=cwd,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )
