"""Killed or stopped in the middle of any of their phases, runs end as if nothing had happened."""

import json
import os
import signal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nscl.training.checkpoint import Place
from nscl.training.display.display import Quiet
from nscl.training.experiment import run
from nscl.training.process.interrupt import InterruptedRunError
from tests.runs import small

OPTIONS: dict[str, dict[str, Any]] = {
    "joint": {},
    "lwf": {"warmup_epochs": 2},
    "muc-mas": {"pool": "procedural", "pool_size": 100, "side_epochs": 2, "strength": 0.1},
    "gd-wild": {"pool": "procedural", "pool_size": 300, "budget": 30, "finetune_share": 0.5},
}
PHASES = [
    ("joint", "train"),
    ("lwf", "warmup"),
    ("lwf", "train"),
    ("muc-mas", "train"),
    ("muc-mas", "side"),
    ("gd-wild", "init"),
    ("gd-wild", "main"),
    ("gd-wild", "finetune"),
]


def config(method: str, out: Path) -> Any:
    given = {"optim": {"epochs": 2, "batch_size": 64}, "model": {"name": "convnet", "width": 4}}
    tasks = 3 if method == "muc-mas" else 2  # it has nothing to do after the last
    return small(method, out, options=OPTIONS[method], data={"first": tasks}, **given)


class Killed(BaseException):
    pass


class Break(Quiet):
    """Ends the run at the third step of an epoch of the phase, in the second task."""

    def __init__(self, phase: str, epoch: int, how: str) -> None:
        self.at, self.how = (1, phase, epoch, 3), how

    def step(self, place: Place, phase: Any, epochs: int, tally: Any, batches: int) -> None:
        if (place.task, phase.name, place.epoch, tally.steps) == self.at:
            if self.how == "kill":
                raise Killed
            os.kill(os.getpid(), signal.SIGTERM)


def records(out: Path, name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (out / name / "metrics.jsonl").read_text().splitlines()]
    for record in found:
        record.pop("seconds")
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def of(method: str) -> tuple[Any, list[dict[str, Any]]]:
        out = tmp_path_factory.mktemp(method)
        result = run(config(method, out))
        return result, records(out, result.directory)

    return of


@pytest.mark.parametrize("how", ["kill", "stop"])
@pytest.mark.parametrize(("method", "phase"), PHASES)
def test_resume(method: str, phase: str, how: str, whole: Any, tmp_path: Path) -> None:
    truth, log = whole(method)
    epoch = 0 if phase in ("main", "finetune") else 1
    with pytest.raises((Killed, InterruptedRunError)):
        run(config(method, tmp_path), display=Break(phase, epoch, how))
    resumed = run(config(method, tmp_path))
    assert resumed.accuracy == truth.accuracy
    assert resumed.notes == truth.notes
    assert records(tmp_path, resumed.directory) == log


def test_every_mechanism_leaves_its_trace(whole: Any) -> None:
    traces = {
        "lwf": {"train": ["kd"]},
        "muc-mas": {"train": ["penalty"], "side": ["discrepancy", "side_accuracy"]},
        "gd-wild": {"init": ["confidence"], "main": ["kd", "ensemble"], "finetune": ["kd"]},
    }
    for method, phases in traces.items():
        seen = [r for r in whole(method)[1] if r["kind"] == "epoch" and r["task"] == 1]
        for phase, names in phases.items():
            last = [record for record in seen if record["phase"] == phase][-1]
            for name in names:
                assert last[f"method/{name}"] > 0, (method, phase, name)
