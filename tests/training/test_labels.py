"""What a plan calls a run is kept beside it, once, and is no part of what the run is."""

import json
from pathlib import Path

import nscl
from nscl.results import RunDirectory
from tests.runs import small


def test_a_label_is_kept_and_never_written_anew(tmp_path: Path) -> None:
    said = {"data": {"first": 1}, "optim": {"epochs": 1}}
    result = nscl.run(small("finetune", tmp_path, label="as it is", **said))
    run = RunDirectory(tmp_path / result.directory)
    assert run.identity().environment["label"] == "as it is"
    assert result.environment["label"] == "as it is"
    assert "as it is" not in json.dumps(dict(result.config))
    before = {file: file.stat().st_mtime_ns for file in run.path.rglob("*")}
    again = nscl.run(small("finetune", tmp_path, label="called anew", **said))
    assert again.directory == result.directory
    assert {file: file.stat().st_mtime_ns for file in run.path.rglob("*")} == before
