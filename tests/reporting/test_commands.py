"""The command of a report repeats the run: told to a real process, it finds the same folder."""

import shlex
from pathlib import Path

import pytest

import nscl
from nscl.reporting import gather
from nscl.reporting.commands import command
from tests.runs import nscl as start
from tests.runs import small


@pytest.mark.parametrize(
    "said",
    [
        {"method": "adam-nscl", "options": {"a": 30, "literal": True}},
        {"method": "gem", "optim": {"milestones": (1, 2), "epochs": 1}, "track_old_losses": 2},
    ],
)
def test_the_command_makes_the_same_run(tmp_path: Path, said: dict[str, object]) -> None:
    method = str(said.pop("method"))
    data = {"first": 1}
    result = nscl.run(small(method, tmp_path / "runs", eval_each_epoch=True, data=data, **said))
    (run,) = gather([tmp_path]).runs
    words = shlex.split(command(run))
    assert words[:2] == ["nscl", "run"]
    process = start(*words[1:], cwd=tmp_path)  # --out is runs unless said: the run is there
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert output.strip() == f"result: runs/{result.directory}"
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [result.directory]
