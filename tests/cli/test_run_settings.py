"""Flags that are settings of a run have the type, limits and help of ``nscl run``."""

from typing import Any

import pytest
from pydantic import ValidationError

from nscl.cli.app import call
from nscl.cli.commands.resume import ResumeSettings
from nscl.cli.many_runs.compare import CompareSettings
from nscl.cli.many_runs.sweep import SweepSettings
from nscl.cli.many_runs.tune import TuneSettings
from nscl.cli.run_settings import given, nothing_given
from nscl.training.config.schema import Part, RunConfig


@pytest.mark.parametrize("kind", [CompareSettings, SweepSettings, TuneSettings, ResumeSettings])
def test_only_help_texts_differ_from_those_of_a_run(kind: type[RunConfig]) -> None:
    for name, field in kind.model_fields.items():
        run = RunConfig.model_fields[name]
        assert _plain(field.annotation) == _plain(run.annotation)
        assert field.metadata[: len(run.metadata)] == run.metadata
        assert field.default == run.default
        assert field.description
    texts = {name: field.description for name, field in kind.model_fields.items()}
    own = {n for n, text in texts.items() if text != RunConfig.model_fields[n].description}
    assert own <= {"threads", "preset", "device", "data_dir", "track"}


def _plain(annotation: Any) -> Any:
    """The type of a setting; of a table its fields, which may have short names besides."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return {name: _plain(field.annotation) for name, field in annotation.model_fields.items()}
    return annotation


def test_which_settings_a_command_leaves_out() -> None:
    every, always = set(RunConfig.model_fields), {"benchmark", "seed", "label"}
    assert every - set(SweepSettings.model_fields) == always
    assert every - set(CompareSettings.model_fields) == always | {"method", "options"}
    assert every - set(TuneSettings.model_fields) == always | {"method", "out"}


def test_only_what_the_user_has_set_is_given() -> None:
    assert given(nothing_given(CompareSettings)) == {}
    settings = CompareSettings(optim={"lr": "0.5"}, device="cpu")
    assert given(settings) == {"optim": {"lr": 0.5}, "device": "cpu"}
    with pytest.raises(ValidationError, match="device must be auto"):
        CompareSettings(device="tpu")


@pytest.mark.parametrize("command", ["run", "compare", "sweep", "tune"])
def test_help_shows_both_names(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "--optim.lr --lr" in text
    assert "--data.tasks --tasks" in text
    assert "--model NAME" in text
