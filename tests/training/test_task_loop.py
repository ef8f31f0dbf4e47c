"""The order of a run: every hook of a method in its place; and what runs promise on the digits."""

from pathlib import Path
from statistics import mean

import pytest

from nscl.data import Batches, Split, open_stream
from nscl.methods.baselines.finetune import Finetune
from nscl.results import read_metrics
from nscl.training.experiment import run
from nscl.training.setup import Loaders
from tests.quick_runs import QuickRuns
from tests.runs import small


def test_adam_nscl_forgets_five_times_less_at_equal_or_better_accuracy(
    quick_runs: QuickRuns,
) -> None:
    """``split-digits-5``, preset quick, seeds 0–4."""
    results = {
        method: [quick_runs(method, seed) for seed in range(5)]
        for method in ("finetune", "adam-nscl")
    }
    forgetting = {name: mean(r.forgetting for r in found) for name, found in results.items()}
    accuracy = {name: mean(r.acc for r in found) for name, found in results.items()}
    assert forgetting["finetune"] > 5
    assert forgetting["adam-nscl"] <= forgetting["finetune"] / 5
    assert accuracy["adam-nscl"] >= accuracy["finetune"] + 2
    assert sum(r.seconds for found in results.values() for r in found) / 5 < 60


def test_the_hooks_of_a_method_are_called_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for name in ("start_task", "enter_phase", "optimizer", "leave_phase", "end_task"):
        plain = getattr(Finetune, name)

        def watched(self: Finetune, task: int, *rest: object, _n: str = name, _p=plain) -> object:  # type: ignore[no-untyped-def]
            calls.append(f"{_n} {task}")
            return _p(self, task, *rest)

        monkeypatch.setattr(Finetune, name, watched)
    run(small("finetune", tmp_path, data={"first": 2}, optim={"epochs": 1}))
    hooks = ("start_task", "enter_phase", "optimizer", "leave_phase", "end_task")
    assert calls == [f"{hook} {task}" for task in (0, 1) for hook in hooks]


def test_epochs_and_tasks_are_logged(tmp_path: Path) -> None:
    settings = {"data": {"first": 2}, "optim": {"epochs": 2}, "eval_each_epoch": True}
    result = run(small("finetune", tmp_path, **settings))
    records = list(read_metrics(tmp_path / result.directory / "metrics.jsonl"))
    assert [r["kind"] for r in records] == ["epoch", "epoch", "task"] * 2
    assert [r["steps"] for r in records if r["kind"] == "epoch"][-1] == result.steps
    tasks = [r for r in records if r["kind"] == "task"]
    assert [r["accuracies"] for r in tasks] == [
        [v for v in row if v is not None] for row in result.accuracy.rows
    ]
    last = [r for r in records if r["kind"] == "epoch"][-1]
    assert last["test_accuracy"] == tasks[-1]["accuracies"][-1]


@pytest.mark.parametrize(("method", "epochs"), [("finetune", [3, 1]), ("independent", [3, 3])])
def test_random_weights_have_the_epochs_of_the_first_task(
    tmp_path: Path, method: str, epochs: list[int]
) -> None:
    optim = {"epochs": 1, "first_epochs": 3}
    result = run(small(method, tmp_path, data={"first": 2}, optim=optim))
    records = read_metrics(tmp_path / result.directory / "metrics.jsonl")
    tasks = [r["task"] for r in records if r["kind"] == "epoch"]
    assert [tasks.count(task) for task in (0, 1)] == epochs


def test_a_run_on_held_out_images_never_sees_a_test_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    plain = Loaders.__call__

    def watched(self: Loaders, split: Split, **options: object) -> Batches:
        seen.extend(hash(image.numpy().tobytes()) for image in split.images)
        return plain(self, split, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Loaders, "__call__", watched)
    run(small("finetune", tmp_path, data={"first": 2, "holdout": 0.2}, optim={"epochs": 1}))
    stream = open_stream("split-digits-5")
    train = {hash(i.numpy().tobytes()) for task in stream.tasks[:2] for i in task.train.images}
    test = {hash(i.numpy().tobytes()) for task in stream.tasks[:2] for i in task.test.images}
    assert set(seen) == train
    assert not set(seen) & (test - train)
