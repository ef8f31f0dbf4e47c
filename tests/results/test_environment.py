"""What a run ran on, without naming anybody; and reading without torch."""

import getpass
import json
import os
import platform
import socket
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest

from nscl.results import environment, fingerprint


def test_versions_are_the_installed_ones():
    found = fingerprint()
    assert found["python"] == platform.python_version()
    assert found["torch"] == version("torch")
    assert found["numpy"] == version("numpy")
    assert found["cpus"] == os.cpu_count()
    assert isinstance(found["processor"], str)
    assert found["processor"]
    assert json.loads(json.dumps(found)) == found


def test_date_and_commit_are_those_of_now() -> None:
    found = fingerprint()
    began = datetime.strptime(str(found["date"]), "%Y-%m-%dT%H:%MZ").replace(tzinfo=UTC)
    assert abs((datetime.now(UTC) - began).total_seconds()) < 120
    root = Path(__file__).parents[2]
    head = subprocess.run(
        ["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    assert (found["commit"] is None) == bool(head.returncode)
    assert head.stdout.startswith(str(found["commit"] or "").rstrip("+"))


def test_an_installed_package_takes_no_commit_from_what_lies_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment in somebody's own project: its commit is not this library's."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    inside = tmp_path / "lib" / "site-packages"
    inside.mkdir(parents=True)
    for place in (inside, tmp_path):
        monkeypatch.setattr(environment, "_CHECKOUT", place)
        assert environment._commit.__wrapped__() is None


def test_where_nothing_counts_processes_the_load_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown() -> None:
        raise OSError

    assert environment.machine_load() is not None
    monkeypatch.setattr(os, "getloadavg", unknown)
    assert environment.machine_load() is None


def test_nobody_and_no_place_is_named():
    words = json.dumps(fingerprint()).replace('"', " ").replace(",", " ").split()
    for private in (socket.gethostname(), getpass.getuser()):
        assert private not in words
    assert not any("/" in word for word in words)


def test_results_are_read_and_written_without_torch(tmp_path, make_run, make_result, start):
    run = make_run()
    run.write_result(make_result(directory=run.name))
    code = (
        "import sys\n"
        "import nscl.results as r, nscl.results.records.spectra as s\n"
        "assert 'numpy' not in sys.modules\n"
        "r.fingerprint()\n"
        "s.write(sys.argv[2], {0: {'fc': {'eigenvalues': [1.0], 'weights': [0.0]}}})\n"
        "print(r.find_runs([sys.argv[1]]).runs[0].result().acc, 'torch' in sys.modules)\n"
    )
    output, trouble = start(code, run.path, tmp_path / "s.npz").communicate(timeout=30)
    assert output.split() == [str(make_result().acc), "False"], trouble
