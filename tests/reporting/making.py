"""Runs made through nscl.results alone: as real ones on disk, in milliseconds."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nscl.metrics import AccuracyMatrix
from nscl.results import MetricsLog, Result, RunDirectory
from nscl.results.records import spectra as spectra_file

TASKS, EPOCHS = 4, 3


def config(method: str, seed: int, **options: Any) -> dict[str, Any]:
    return {
        "benchmark": "split-digits-5",
        "method": method,
        "preset": "quick",
        "seed": seed,
        "options": options,
        "optim": {"name": "adam", "lr": 0.01, "later_lr": None, "epochs": EPOCHS, "milestones": []},
        "data": {"order": "natural", "first": None},
        "bn_stats": "shared",
        "eval_each_epoch": False,
    }


def matrix(method: str, seed: int, tasks: int = TASKS) -> AccuracyMatrix:
    """Fine-tuning forgets, everything else hardly does; no two runs are alike."""
    loss = 12.0 if method == "finetune" else 1.0 + len(method) % 3
    rng = np.random.default_rng([seed, len(method)])
    noise = rng.uniform(0, 2, (tasks, tasks))
    forgot = [[loss * (i - j) for j in range(i + 1)] for i in range(tasks)]
    rows = [
        [96 - noise[i, j] - min(each, 90.0) for j, each in enumerate(row)]
        for i, row in enumerate(forgot)
    ]
    return AccuracyMatrix(rows)


def epochs(tasks: int, *, tracked: int) -> list[dict[str, Any]]:
    """Steps take 10 ms in the first task, 20 in the second, ...; a task's preparation 1 s."""
    records, steps = [], 0
    for task in range(tasks):
        for epoch in range(EPOCHS):
            steps += 10
            record = {
                "kind": "epoch", "task": task, "phase": "train", "epoch": epoch, "loss": 0.5,
                "steps": steps, "seconds": 1.0 + (epoch + 1) * 10 * 0.01 * (task + 1),
            }  # fmt: skip
            if tracked:
                record["old_losses"] = [0.1 * (task + 1)] * min(tracked, task + 1)
            records.append(record)
    return records


def make_run(
    root: Path,
    method: str = "finetune",
    seed: int = 0,
    *,
    benchmark: str = "split-digits-5",
    finished: bool = True,
    tasks: int = TASKS,
    tracked: int = 0,
    stores: str = "nothing",
    notes: dict[str, Any] | None = None,
    layers: dict[str, int] | None = None,
    settings: dict[str, Any] | None = None,
    label: str | None = None,
    environment: dict[str, Any] | None = None,
    **options: Any,
) -> RunDirectory:
    whole = {**config(method, seed, **options), "benchmark": benchmark, **(settings or {})}
    if tracked:
        whole["track_old_losses"] = tracked
    run = RunDirectory.create(
        root,
        benchmark=benchmark,
        method=method,
        seed=seed,
        config=whole,
        environment={"threads": 1} | (environment or {}) | ({"label": label} if label else {}),
    )
    accuracy = matrix(method, seed, tasks)
    with MetricsLog(run.metrics_path) as log:
        for record in epochs(tasks, tracked=tracked):
            log.append(record)
        for task, row in enumerate(accuracy.rows):
            log.append({"kind": "task", "task": task, "accuracies": list(row), "seconds": 1.0})
    if layers:
        spectra_file.write(run.spectra_path, spectra(layers, tasks))
    if finished:
        run.write_result(replace(result(run, accuracy, stores), notes=notes or {}))
    return run


def result(run: RunDirectory, accuracy: AccuracyMatrix, stores: str) -> Result:
    who = run.identity()
    return Result(
        directory=run.name, benchmark=who.benchmark, method=who.method,
        preset=who.config["preset"], seed=who.seed, accuracy=accuracy, seconds=12.5,
        seconds_per_task=(3.0,) * accuracy.tasks, seconds_per_step=0.004 + 0.001 * who.seed,
        steps=100, peak_memory_bytes=10**8, state_bytes=3000, model_bytes=2000, stores=stores,
        config=who.config, environment=who.environment,
    )  # fmt: skip


def spectra(layers: dict[str, int], tasks: int) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for task in range(tasks):
        found[task] = {}
        for name, size in layers.items():
            values = np.sort(10.0 ** np.linspace(-8, 2, size))[None]
            weights = (np.arange(size) < size // (task + 2)).astype(float)[None]
            found[task][name] = {"eigenvalues": values, "weights": weights}
    return found


def laboratory(root: Path) -> Path:
    """Three methods over two seeds, one of them swept, one keeping data, one with spectra."""
    layers = {"backbone.layers.0": 30, "backbone.layers.1": 12}
    for seed in (0, 1):
        make_run(root, "finetune", seed, tracked=3)
        make_run(root, "gem", seed, stores="data", tracked=3)
        for a, known in ((10.0, layers), (1000.0, None)):
            make_run(root, "adam-nscl", seed, stores="parameters", layers=known, tracked=3, a=a)
    return root
