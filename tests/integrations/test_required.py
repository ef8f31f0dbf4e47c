"""Where the libraries are required, one that cannot be imported fails the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def collect(folder: Path, tests: str, required: str) -> subprocess.CompletedProcess[str]:
    """Run one file's tests where ``accelerate`` cannot be imported."""
    (folder / "accelerate.py").write_text("raise ModuleNotFoundError('no accelerate here')\n")
    paths = os.pathsep.join([str(folder), str(ROOT / "src"), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", HERE / tests],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "NSCL_REQUIRE_INTEGRATIONS": required},
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("required", ["0", "1"])
def test_a_library_that_cannot_be_imported(tmp_path: Path, required: str) -> None:
    done = collect(tmp_path, "test_accelerate.py", required)
    assert "no accelerate here" in done.stdout
    if required == "1":
        assert done.returncode == pytest.ExitCode.INTERRUPTED
        assert "NSCL_REQUIRE_INTEGRATIONS is set, and tests/integrations" in done.stdout
    else:
        assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED  # all of them are skipped


def test_the_makefile_requires_them() -> None:
    recipe = (
        (ROOT / "Makefile").read_text().partition("\ntest-integrations:")[2].partition("\n\n")[0]
    )
    assert "NSCL_REQUIRE_INTEGRATIONS=1" in recipe
