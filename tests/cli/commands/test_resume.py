"""``nscl resume``: it continues the run of a folder, and begins no other one."""

import json
from pathlib import Path

import pytest

from nscl.cli.app import call
from nscl.results import config_hash
from tests.cli.calling import QUICK, check_refused


def test_a_folder_without_a_run_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_refused(("resume", "nowhere"), "nowhere is not a run", here, capsys)


def test_a_finished_run_says_so_and_no_other_is_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder renamed, or of a version with other options, is reported and not run again."""
    assert call(["run", "split-digits-5", *QUICK, "--quiet", "--out", str(tmp_path)]) == 0
    (run,) = tmp_path.iterdir()
    assert call(["resume", str(run)]) == 0
    acc = json.loads((run / "result.json").read_text())["acc"]
    assert f"{run} is finished: ACC {acc:.2f} %" in capsys.readouterr().out
    kept = (run / "config.json").read_text()
    old = json.loads(kept)
    old["config"]["options"].pop("a")
    old["hash"] = config_hash(old["config"])
    (run / "config.json").write_text(json.dumps(old))
    assert call(["resume", str(run)]) == 2
    assert "of another version of nscl, for which options.a meant" in capsys.readouterr().err
    (run / "config.json").write_text(kept)
    moved = run.rename(tmp_path / "mine")
    assert call(["resume", str(moved)]) == 2
    assert f"rename the folder to {run.name}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [moved]
