"""Small real runs for tests: the digits, few tasks, few epochs."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nscl.training.config.build import build_config
from nscl.training.config.schema import RunConfig

SMALL: dict[str, Any] = {
    "threads": 1,
    "data": {"first": 3},
    "optim": {"epochs": 2, "batch_size": 32},
}


def small(method: str, out: Path, **given: Any) -> RunConfig:
    from nscl.training.config.layers import merge

    layers = merge(SMALL, {"method": method, "out": out})
    return build_config("split-digits-5", merge(layers, given))


class AtStep:
    """A display that shows nothing and does something once, in the step of this number."""

    def __init__(self, number: int, do: Callable[[], object]) -> None:
        self.left, self.do = number, do

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None

    def step(self, *args: Any) -> None:
        self.left -= 1
        if self.left == 0:
            self.do()


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


def two_ranks(module: str, folder: Path) -> None:
    """Run a module in two real processes, with the folder and their rank as arguments."""
    root = Path(__file__).parents[1]
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    command = [sys.executable, "-m", module, str(folder)]
    ranks = [
        subprocess.Popen([*command, rank], cwd=root, env=environment, stderr=subprocess.PIPE)
        for rank in ("0", "1")
    ]
    for process in ranks:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()


def as_rank(find: Callable[..., object]) -> None:
    """One of these processes: meet the other rank through a file, and write what was found."""
    import torch
    import torch.distributed as dist

    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    torch.save(find(rank=rank, ranks=2), folder / f"{rank}.pt")
    dist.destroy_process_group()
