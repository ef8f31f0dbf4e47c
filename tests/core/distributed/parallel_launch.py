"""Two ranks, started once for all tests: what every scenario gave on every rank."""

import os
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

import nscl

ROOT = Path(__file__).parents[3]
Ranks = list[dict[str, Any]]
# Sets of names come in another order on every rank, as they do in real life, and always in these.
WORKER = 'PYTHONHASHSEED=$((1 + 4 * RANK)) exec "$0" -m tests.core.distributed.parallel_worker "$1"'


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@cache
def launch() -> Ranks:
    """Every scenario's result on every rank, or the traceback it ended with."""
    with TemporaryDirectory(prefix="ranks-") as name:
        return _launch(Path(name))


def _launch(folder: Path) -> Ranks:
    source = Path(nscl.__file__).parents[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--no-python"]
    command += ["--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    command += ["sh", "-c", WORKER, sys.executable, str(folder)]
    path = os.pathsep.join((str(source), str(ROOT)))
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    found = []
    for rank in range(2):
        file = folder / f"{rank}.pt"
        found.append(torch.load(file, weights_only=True) if file.exists() else {})
        found[rank]["ended"] = f"exit code {done.returncode}: {done.stderr[-1500:]}"
    return found


def results(ranks: Ranks, scenario: str) -> list[Any]:
    for rank, found in enumerate(ranks):
        assert scenario in found, f"rank {rank} never got there: {found['ended']}"
        assert "error" not in found[scenario], f"rank {rank}: {found[scenario]['error']}"
    return [found[scenario]["result"] for found in ranks]


def largest_difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)
