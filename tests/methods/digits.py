"""What tests of methods ask of runs on the digits: little forgetting, and figures in the log."""

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from nscl.results import Result
from nscl.training.config.build import build_config
from nscl.training.experiment import run


@cache
def backward_transfer(method: str) -> tuple[float, ...]:
    """BWT of seeds 0–2 on ``split-digits-5``, preset quick, three of its ten epochs for time."""
    with tempfile.TemporaryDirectory() as folder:
        given: dict[str, Any] = {"method": method, "out": Path(folder), "optim": {"epochs": 3}}
        results = [run(build_config("split-digits-5", {**given, "seed": s})) for s in range(3)]
    return tuple(result.bwt for result in results)


def last_epoch(out: Path, result: Result) -> dict[str, Any]:
    """The log's line of the last epoch."""
    lines = (out / result.directory / "metrics.jsonl").read_text().splitlines()
    found: dict[str, Any] = [r for r in map(json.loads, lines) if r["kind"] == "epoch"][-1]
    return found


def written_options(out: Path, result: Result) -> dict[str, Any]:
    """The method's options as config.json has them."""
    config = json.loads((out / result.directory / "config.json").read_text())
    options: dict[str, Any] = config["config"]["options"]
    return options
