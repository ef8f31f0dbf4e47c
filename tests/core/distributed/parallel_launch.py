"""Two ranks, started once for all tests: what every scenario gave on every rank."""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import nscl

ROOT = Path(__file__).parents[3]
Ranks = list[dict[str, Any]]
WORKER = "tests.core.distributed.parallel_worker"
SECONDS = 240


def launch(root: Path) -> Ranks:
    """Every scenario's result on every rank, or the traceback it ended with.

    Test processes side by side share one start: the first of them runs it, the others wait.
    """
    folder = root / "ranks"
    folder.mkdir(exist_ok=True)
    ended = folder / "ended"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ended.exists():
            ended.write_text(_run(folder))
    found = []
    for rank in range(2):
        file = folder / f"{rank}.pt"
        found.append(torch.load(file, weights_only=True) if file.exists() else {})
        found[rank]["ended"] = ended.read_text()
    return found


def _run(folder: Path) -> str:
    """How both processes ended; when one fails, the other would wait for it in vain."""
    processes = [_start(rank, folder) for rank in range(2)]
    deadline = time.monotonic() + SECONDS
    while any(process.poll() is None for process in processes):
        if any(process.returncode for process in processes) or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    for process in processes:
        process.kill()
        process.wait()
    errors = "\n".join((folder / f"{rank}.err").read_text()[-1500:] for rank in range(2))
    return f"exit codes {[process.returncode for process in processes]}: {errors}"


def _start(rank: int, folder: Path) -> subprocess.Popen[bytes]:
    path = os.pathsep.join((str(Path(nscl.__file__).parents[1]), str(ROOT)))
    # Sets of names come in another order on every rank, as they do in real life, and always in
    # these.
    settings = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": str(1 + 4 * rank)}
    with (folder / f"{rank}.err").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", WORKER, str(folder), str(rank)],
            cwd=ROOT,
            env={**os.environ, **settings},
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )


def results(ranks: Ranks, scenario: str) -> list[Any]:
    for rank, found in enumerate(ranks):
        assert scenario in found, f"rank {rank} never got there: {found['ended']}"
        assert "error" not in found[scenario], f"rank {rank}: {found[scenario]['error']}"
    return [found[scenario]["result"] for found in ranks]


def largest_difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)
