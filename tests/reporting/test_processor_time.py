"""The processor time of a report, with its processes: thirty committed runs and all figures."""

import os
import sys
from pathlib import Path

import pytest

RUNS = Path(__file__).parents[2] / "results" / "split-cifar100-10"
SECONDS = 10.0  # on a quiet machine, where 7.3 were measured
BUSY = 1.4  # processes that share a core take longer for the same work


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="no resource usage of a child here")
def test_thirty_runs_take_less_than_ten_seconds_of_processor_time(tmp_path: Path) -> None:
    code = "import sys; from nscl.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "report", str(RUNS), "--out", str(tmp_path / "report")]
    child = os.spawnv(os.P_NOWAIT, sys.executable, [*command, "--quiet"])
    _, status, usage = os.wait4(child, 0)  # its own usage and that of the processes it started
    assert os.waitstatus_to_exitcode(status) == 0
    assert len([*(tmp_path / "report" / "figures").glob("*.png")]) > 20
    assert usage.ru_utime + usage.ru_stime < SECONDS * BUSY
