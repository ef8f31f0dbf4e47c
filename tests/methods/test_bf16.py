"""Every method in bf16: forward and backward passes in half precision, everything kept in full."""

import math
from pathlib import Path

import pytest

from nscl.methods import METHODS
from nscl.results import read_metrics
from nscl.training.experiment import run
from tests.methods.digits import last_epoch
from tests.runs import small

OPTIONS = {
    "muc-mas": {"pool": "procedural", "pool_size": 100, "samples": 50},
    "gd-wild": {"pool": "procedural", "pool_size": 100, "budget": 40},
    "instaparam": {"kernels": (3, 1), "controller_width": 2, "exponent": 0.0, "ewc": 1e4},
    "ewc": {"samples": 50},
    "mas": {"samples": 50},
}


def test_it_is_another_precision(tmp_path: Path) -> None:
    given = {"data": {"first": 1}, "optim": {"epochs": 1}}
    runs = [run(small("finetune", tmp_path, precision=p, **given)) for p in ("fp32", "bf16")]
    losses = [last_epoch(tmp_path, result)["loss"] for result in runs]
    assert losses[0] != losses[1] == pytest.approx(losses[0], rel=0.05)


@pytest.mark.parametrize("method", METHODS)
def test_it_trains_two_tasks_and_every_figure_is_finite(method: str, tmp_path: Path) -> None:
    config = small(
        method,
        tmp_path,
        precision="bf16",
        model={"name": "convnet", "width": 4},  # convolutions and running statistics
        data={"first": 2},
        optim={"epochs": 2},
        options=OPTIONS.get(method, {}),
    )
    result = run(config)
    assert result.accuracy.rows[0][0] > 80  # of the first task: it has learned
    assert result.acc > 60
    found = read_metrics(tmp_path / result.directory / "metrics.jsonl")
    figures = [v for line in found for v in line.values() if isinstance(v, float)]
    assert figures
    assert all(math.isfinite(v) for v in figures)
