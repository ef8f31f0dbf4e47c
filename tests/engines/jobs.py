"""Jobs for tests: configurations of small runs, and the files of runs that were never trained."""

import json
from pathlib import Path
from typing import Any

from nscl.engines.job import Job
from nscl.metrics import AccuracyMatrix
from nscl.results import Result, RunDirectory
from tests.runs import small


def job(out: Path, label: str = "finetune", **given: Any) -> Job:
    return Job(small("finetune", out, **given), label)


def write_metrics(made: Job, records: list[dict[str, Any]]) -> None:
    path = made.directory.metrics_path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def finish(made: Job, rows: list[list[float]], seconds: float, stores: str = "nothing") -> Result:
    config = made.config
    names: dict[str, Any] = {
        "benchmark": config.benchmark,
        "method": config.method,
        "seed": config.seed,
        "config": config.identity(),
        "environment": {},
    }
    directory = RunDirectory.create(config.out, **names)
    result = Result(
        directory=directory.name,
        preset=config.preset,
        accuracy=AccuracyMatrix(rows),
        seconds=seconds,
        seconds_per_task=tuple(seconds / len(rows) for _ in rows),
        seconds_per_step=None,
        steps=1,
        peak_memory_bytes=None,
        state_bytes=0,
        model_bytes=1,
        stores=stores,
        **names,
    )
    directory.write_result(result)
    return result


def epoch(task: int, number: int, seconds: float) -> dict[str, Any]:
    return {"kind": "epoch", "task": task, "phase": "train", "epoch": number, "steps": 1,
            "seconds": seconds}  # fmt: skip


def task_end(task: int, acc: float, seconds: float) -> dict[str, Any]:
    return {"kind": "task", "task": task, "accuracies": [acc] * (task + 1), "acc": acc,
            "bwt": -1.0, "seconds": seconds}  # fmt: skip
