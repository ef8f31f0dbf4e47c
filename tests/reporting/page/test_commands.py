"""The command of a report repeats the run: a real process finds the same folder."""

import json
import shlex
from pathlib import Path

import pytest

import nscl
from nscl.cli.app import call
from nscl.engines.job import Job
from nscl.errors import NsclError
from nscl.methods import METHODS
from nscl.metrics import AccuracyMatrix
from nscl.reporting import Run, gather
from nscl.reporting.page.commands import command
from nscl.training.config.build import build_config
from nscl.training.config.schema import RunConfig
from tests.runs import nscl as start
from tests.runs import small


@pytest.mark.parametrize("preset", ["quick", "cpu", "cpu-1", "half", "paper", "official"])
@pytest.mark.parametrize("method", METHODS)
def test_the_command_of_every_method_is_accepted(
    method: str, preset: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken: list[RunConfig] = []

    def take(config: RunConfig, **_: object) -> None:
        taken.append(config)
        raise NsclError("taken")

    monkeypatch.setattr("nscl.training.experiment.run", take)
    config = build_config("split-digits-5", {"method": method, "preset": preset, "label": "mine"})
    words = shlex.split(command(as_run(config)))
    assert call(words[1:]) == 2
    assert capsys.readouterr().err == "nscl: taken\n"
    assert Job(taken[0], "").name == Job(config, "").name
    assert taken[0].label == "mine"


def test_an_option_that_is_none_against_the_preset_is_written() -> None:
    given = {"method": "ewc", "preset": "cpu", "options": {"samples": None}}
    config = build_config("split-digits-5", given)
    assert config.options["samples"] is None
    assert "--method.samples none" in command(as_run(config))


def as_run(config: RunConfig) -> Run:
    who = {"benchmark": config.benchmark, "method": config.method, "seed": config.seed}
    settings = json.loads(json.dumps(config.identity()))
    return Run(
        name="x", **who, config=settings, environment=config.place(), accuracy=AccuracyMatrix()
    )


@pytest.mark.parametrize(
    "given",
    [
        {"method": "adam-nscl", "options": {"a": 30, "literal": True}},
        {"method": "gem", "optim": {"milestones": (1, 2), "epochs": 1}, "track_old_losses": 2},
    ],
)
def test_the_command_makes_the_same_run(tmp_path: Path, given: dict[str, object]) -> None:
    method = str(given.pop("method"))
    data = {"first": 1}
    result = nscl.run(small(method, tmp_path / "runs", eval_each_epoch=True, data=data, **given))
    (run,) = gather([tmp_path]).runs
    words = shlex.split(command(run))
    assert words[:2] == ["nscl", "run"]
    process = start(*words[1:], cwd=tmp_path)  # --out is runs by default: the run is there
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert output.strip() == f"result: runs/{result.directory}"
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [result.directory]
