"""A configuration is parsed once: everything between the command and the first step trusts it."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from pydantic import BaseModel

import nscl
from nscl.cli.app import call
from nscl.methods.base import Options
from nscl.methods.registry import load_method
from nscl.results.naming import config_hash
from nscl.training.config.schema import RunConfig
from nscl.training.loop import EpochLoop
from tests.runs import small

ONCE = {"options": 1, "method": 1, "hash": 1}
WATCHED: dict[CodeType, str] = {
    BaseModel.model_validate.__func__.__code__: "options",  # type: ignore[attr-defined]
    load_method.__code__: "method",
    config_hash.__code__: "hash",
}


class FirstStepError(Exception):
    """Everything before the first step has been seen."""


@contextmanager
def counting() -> Iterator[Counter[str]]:
    counts: Counter[str] = Counter()

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        name = WATCHED.get(frame.f_code) if event == "call" else None
        if name == "options" and not issubclass(frame.f_locals["cls"], Options):
            return
        if name:
            counts[name] += 1

    sys.setprofile(watch)
    try:
        yield counts
    finally:
        sys.setprofile(None)


@pytest.fixture
def first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise FirstStepError

    monkeypatch.setattr(EpochLoop, "_step", stop)


@pytest.mark.usefixtures("first_step")
def test_by_the_command_line(tmp_path: Path) -> None:
    command = ["run", "split-digits-5", "--method", "adam-nscl", "--quiet", "--out", str(tmp_path)]
    with counting() as counts, pytest.raises(FirstStepError):
        call(command)
    assert counts == ONCE


@pytest.mark.usefixtures("first_step")
def test_by_hand_in_python(tmp_path: Path) -> None:
    config = RunConfig(benchmark="split-digits-5", out=tmp_path, model={"name": "mlp"})  # type: ignore[arg-type]
    with counting() as counts, pytest.raises(FirstStepError):
        nscl.run(config)
    assert counts == ONCE


@pytest.mark.usefixtures("first_step")
def test_a_built_configuration_is_not_parsed_again(tmp_path: Path) -> None:
    config = small("adam-nscl", tmp_path)
    with counting() as counts, pytest.raises(FirstStepError):
        nscl.run(config)
    assert counts == {"hash": 1}
