"""What the tests of projection methods share: built methods, short runs, kills in a phase."""

import json
from functools import cache
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import Tensor

from nscl.methods.base import Batch, Method, Phase
from nscl.training.experiment import run
from nscl.training.process.device import Ranks
from nscl.training.setup import Setup
from tests.runs import small

# Steps of a few milliseconds: a second thread costs more than it gives.
torch.set_num_threads(1)

CONVNET = {"model": {"name": "convnet", "width": 4}}
DOMAIN = {"data": {"scenario": "domain"}}


def build(method: str, out: Path, **given: Any) -> Setup:
    """A method with its stream, network and loaders, before its first step."""
    return Setup.build(small(method, out, **given), Ranks())


def train(method: Method, task: int, *, steps: int = 30, phase: Phase | None = None) -> None:
    """A few steps on a task, without the laboratory around them."""
    phase = phase or method.phases(task)[-1]
    optimizer = method.optimizer(task, phase)
    method.model.train()
    done = 0
    while done < steps:
        for images, labels in method.lab.loader(method.training_split(task), purpose=done):
            batch = Batch(images, labels, task)
            optimizer.zero_grad()
            method.loss(batch, phase).loss.backward()
            method.after_backward(batch, phase)
            optimizer.step()
            method.after_step(batch, phase)
            done += 1


@torch.no_grad()
def features(method: Method, task: int) -> Tensor:
    """What the backbone makes of a task's test images."""
    test = method.lab.stream[task].test
    batches = method.lab.loader(test, purpose="test", augment="none", shuffle=False)
    images = next(iter(batches))[0]
    method.model.eval()
    found: Tensor = method.model.backbone(images)
    method.model.train()
    return found


def shift(name: str, out: Path, **given: Any) -> float:
    """How far features of the first task move, relatively, while the second one is learned."""
    setup = build(name, out, **given)
    method = setup.method
    try:
        setup.loaders.task = 0
        method.start_task(0)
        train(method, 0)
        method.end_task(0)
        before = features(method, 0)
        setup.loaders.task = 1
        method.start_task(1)
        train(method, 1)
        return float((features(method, 0) - before).norm() / before.norm())
    finally:
        setup.close()


@cache
def bwt(method: str, options: tuple[tuple[str, Any], ...] = ()) -> float:
    """Mean BWT of three seeds on three tasks of the digits, preset quick but for its length."""
    given = {"optim": {"epochs": 4, "batch_size": 16}, "options": dict(options)}
    with TemporaryDirectory() as out:
        return mean(run(small(method, Path(out), seed=s, **given)).bwt for s in range(3))


def metrics(method: str, out: Path, **given: Any) -> list[dict[str, float]]:
    """The method's own figures after each epoch of a small run."""
    result = run(small(method, out, **given))
    lines = (out / result.directory / "metrics.jsonl").read_text().splitlines()
    return [
        {k.removeprefix("method/"): v for k, v in record.items() if k.startswith("method/")}
        for record in map(json.loads, lines)
        if record["kind"] == "epoch"
    ]


class Killed(BaseException):
    """Stands for a kill at any instant."""


class KillIn:
    """A display that ends the process, so to speak, in the second epoch of one phase."""

    def __init__(self, task: int, phase: str) -> None:
        self.place = (task, phase, 1)

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None

    def step(self, place: Any, phase: Phase, *args: Any) -> None:
        if (place.task, phase.name, place.epoch) == self.place:
            raise Killed


def check_resumes(method: str, out: Path, *, phase: str, **given: Any) -> None:
    """Kill a run in a phase of its second task; resumed, it ends as if nothing had happened."""
    whole = run(small(method, out / "whole", **given))
    with pytest.raises(Killed):
        run(small(method, out / "broken", **given), display=KillIn(1, phase))
    resumed = run(small(method, out / "broken", **given))
    assert resumed.accuracy == whole.accuracy
    assert resumed.steps == whole.steps
    logs = [
        [
            {k: v for k, v in json.loads(line).items() if k != "seconds"}
            for line in (out / part / whole.directory / "metrics.jsonl").read_text().splitlines()
        ]
        for part in ("whole", "broken")
    ]
    assert logs[0] == logs[1]
