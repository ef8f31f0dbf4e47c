"""Several processes of one run: what one process would find, and the same on all of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nscl.methods import METHODS
from nscl.results import RunDirectory
from nscl.training.experiment import run
from tests.runs import small

ROOT = Path(__file__).parents[2]
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
