"""What holds for all methods: figures of their own, rates of a task's first weights."""

from pathlib import Path
from typing import Any

import pytest

import nscl
from nscl.methods import METHODS
from nscl.results import read_metrics
from nscl.training.process.device import Ranks
from nscl.training.setup import Setup
from tests.runs import small

REFERENCES = ("finetune", "joint", "independent", "frozen")


SHORT = {"data": {"first": 2}, "optim": {"epochs": 1}}


def later_epochs(out: Path, method: str) -> list[dict[str, Any]]:
    result = nscl.run(small(method, out, **SHORT))
    records = read_metrics(out / result.directory / "metrics.jsonl")
    return [record for record in records if record["kind"] == "epoch" and record["task"] > 0]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return [epoch["loss"] for epoch in later_epochs(tmp_path_factory.mktemp("plain"), "finetune")]


@pytest.mark.parametrize("method", [name for name in METHODS if name not in REFERENCES])
def test_every_other_method_shows_its_mechanism(
    method: str, plain: list[float], tmp_path: Path
) -> None:
    """A method that never changes anything is a bug: its own figures in the log are not all 0."""
    epochs = later_epochs(tmp_path, method)
    own = [value for epoch in epochs for name, value in epoch.items() if name.startswith("method/")]
    assert any(value != 0 for value in own)
    assert [epoch["loss"] for epoch in epochs] != plain


@pytest.mark.parametrize(
    ("method", "options", "rate"),
    [
        ("independent", {}, 1e-2),
        ("joint", {}, 1e-2),
        ("joint", {"start": "continue"}, 1e-3),
        ("finetune", {}, 1e-3),
    ],
)
def test_what_starts_anew_learns_at_the_first_tasks_rate(
    method: str, options: dict[str, object], rate: float, tmp_path: Path
) -> None:
    config = small(method, tmp_path, options=options, optim={"later_lr": 1e-3})
    setup = Setup.build(config, Ranks())
    assert setup.method.parameter_groups(0)[0]["lr"] == 1e-2
    assert setup.method.parameter_groups(1)[0]["lr"] == rate
