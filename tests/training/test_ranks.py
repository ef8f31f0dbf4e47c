"""Two processes train what one does: same global batch, same accuracies."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nscl.results import RunDirectory
from nscl.training.experiment import run
from tests.runs import small

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("method", ["finetune", "adam-nscl"])
def test_two_gloo_ranks_equal_one_process(method: str, tmp_path: Path) -> None:
    one = run(small(method, tmp_path / "one", model={"name": "mlp"}))
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone",
         "-m", "tests.training.worker", method, str(tmp_path / "two")],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        timeout=180,
    )  # fmt: skip
    (folder,) = (tmp_path / "two").iterdir()
    two = RunDirectory(folder).result()
    assert two.accuracy.tasks == one.accuracy.tasks
    for mine, theirs in zip(one.accuracy.rows, two.accuracy.rows, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            # Sums in another order may turn one of the 35 test images of a task at most.
            assert a == pytest.approx(b, abs=3.0)
