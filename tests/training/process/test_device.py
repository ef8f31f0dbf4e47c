"""Devices by name; several processes of one run give one result, the same on all of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nscl.methods import METHODS
from nscl.results import RunDirectory
from nscl.training.config.schema import ConfigError
from nscl.training.display.tally import Tally
from nscl.training.experiment import run
from nscl.training.process.device import Ranks, choose_device
from tests.runs import small

ROOT = Path(__file__).parents[3]
# Each has a network, a teacher, importances or choices of its own that statistics could set apart.
CHECKED = ("adam-nscl", "mega", "connector", "ewc", "muc-mas", "gd-wild")
REST = tuple(name for name in METHODS if name not in CHECKED)


def on_two_ranks(worker: str, *args: str) -> None:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone",
         "-m", f"tests.training.{worker}", *args],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        capture_output=True,
        timeout=180,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("method", ["adam-nscl", pytest.param("finetune", marks=pytest.mark.slow)])
def test_two_gloo_ranks_equal_one_process(method: str, tmp_path: Path) -> None:
    one = run(small(method, tmp_path / "one", model={"name": "mlp"}))
    on_two_ranks("worker", method, str(tmp_path / "two"))
    (folder,) = (tmp_path / "two").iterdir()
    two = RunDirectory(folder).result()
    assert two.accuracy.tasks == one.accuracy.tasks
    for mine, theirs in zip(one.accuracy.rows, two.accuracy.rows, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            # Sums in another order may turn one of the 35 test images of a task at most.
            assert a == pytest.approx(b, abs=3.0)


@pytest.mark.parametrize("methods", [CHECKED, pytest.param(REST, marks=pytest.mark.slow)])
def test_all_ranks_hold_the_same_weights_and_statistics(
    methods: tuple[str, ...], tmp_path: Path
) -> None:
    """Real gloo processes, a network with BatchNorm, augmentation; see ``ranks_worker``."""
    on_two_ranks("ranks_worker", str(tmp_path), *methods)


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device("auto") == choose_device("cpu") == torch.device("cpu")
    for name in ("cuda:1", "mps"):
        with pytest.raises(ConfigError, match=f"'{name}' is not on this machine; --device auto"):
            choose_device(name)


def test_auto_takes_this_processes_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert choose_device("auto") == torch.device("cuda", 1)


def test_one_process_shares_nothing() -> None:
    ranks = Ranks()
    assert (ranks.rank, ranks.count, ranks.is_first) == (0, 1, True)
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.ones(2)
    ranks.average_gradients([parameter], share=0.5)
    assert parameter.grad.tolist() == [1.0, 1.0]
    assert ranks.total(Tally(3.0, 2, 4, 1)) == Tally(3.0, 2, 4, 1)
    assert ranks.largest(7) == 7
