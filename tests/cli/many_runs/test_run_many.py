"""What compare, sweep and tune share: methods of the working folder, folders that a plan names."""

import sys
from pathlib import Path

import pytest

from nscl.cli.app import call
from nscl.engines.job import Job

PLAIN = """
from nscl.methods.base import Method


class Plain(Method):
    tuning = {"optim.lr": [0.1, 0.2]}
"""
FOLDERS = """
benchmark = "split-digits-5"
methods = "finetune"
seeds = 1
[settings]
out = "elsewhere"
data_dir = "pictures"
"""


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "split-digits-5", "--methods", "own_plain:Plain"),
        ("sweep", "split-digits-5", "--method", "own_plain:Plain", "--set", "optim.lr=0.1"),
        ("tune", "own_plain:Plain", "split-digits-5"),
    ],
)
def test_a_method_of_ones_own_is_found_in_the_folder_one_works_in(
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The installed command has not this folder on its path, as python -m nscl has."""
    (tmp_path / "own_plain.py").write_text(PLAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.delitem(sys.modules, "own_plain", raising=False)
    assert call([*command, "--jobs", "0"]) == 2
    assert "--jobs 0: at least one run" in capfd.readouterr().err


def test_a_plan_names_folders_that_the_command_line_leaves_open(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where data are looked for, and where runs go."""
    places: list[Path | None] = []

    def run_all(jobs: list[Job], *_: object, **__: object) -> int:
        places.append(jobs[0].config.out)
        return 0

    monkeypatch.setattr(
        "nscl.cli.many_runs.run_many.check_data", lambda _, place: places.append(place)
    )
    monkeypatch.setattr("nscl.cli.many_runs.run_many.run_all", run_all)
    (here / "plan.toml").write_text(FOLDERS)
    command = ("compare", "--plan", "plan.toml")
    assert call(command) == call([*command, "--out", "there", "--data-dir", "mine"]) == 0
    assert places == [Path("pictures"), Path("elsewhere"), Path("mine"), Path("there")]
