"""Accuracies that do not mean what they seem to are named beside the result."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import nscl
from nscl.data.streams import for_scenario
from nscl.data.tasks import Split, Task, TaskStream
from nscl.metrics import AccuracyMatrix
from nscl.results import Result, read_metrics
from nscl.training.remarks import chance, remarks
from tests.runs import small


def task(index: int, labels: list[int], classes: int) -> Task:
    split = Split(torch.zeros(len(labels), 1, 4, 4, dtype=torch.uint8), torch.tensor(labels))
    names = tuple(f"class {i}" for i in range(classes))
    return Task(index, f"task {index}", split, split, tuple(range(classes)), names)


def stream(*tasks: Task) -> TaskStream:
    return TaskStream("mine", tasks, "task", (0.5,), (0.5,))


def test_a_task_of_one_class_is_named_and_not_taken_for_a_guess() -> None:
    found = stream(task(0, [0, 1] * 50, 2), task(1, [0] * 10, 1))
    assert remarks(found, AccuracyMatrix([[90], [90, 100]])) == (
        "one class only in 1 of 2 tasks (2), where 100 % means nothing",
    )


def test_a_growing_head_tells_a_lone_class_from_those_before_it() -> None:
    lone = [replace(task(i, [0] * 10, 1), class_names=(f"class {i}",)) for i in range(3)]
    found = TaskStream("mine", for_scenario(lone, "class"), "class", (0.5,), (0.5,))
    assert remarks(found, AccuracyMatrix([[100], [0, 100], [0, 0, 100]])) == (
        "one class only in 1 of 3 tasks (1), where 100 % means nothing",
    )


def test_tasks_at_chance_are_named_by_what_they_reached_once_learned() -> None:
    found = stream(*(task(i, [0, 1] * 50, 2) for i in range(3)))
    learned_then_forgotten = AccuracyMatrix([[90], [50, 95], [50, 50, 99]])
    assert remarks(found, learned_then_forgotten) == ()
    guessed = AccuracyMatrix([[50], [50, 95], [50, 50, 57]])
    assert remarks(found, guessed) == (
        "no better than chance once learned in 2 of 3 tasks (1, 3), try another learning rate",
    )


def test_a_method_that_holds_old_tasks_names_its_strength_where_later_ones_are_not_learned() -> (
    None
):
    found = stream(*(task(i, [0, 1] * 50, 2) for i in range(3)))
    held = AccuracyMatrix([[95], [95, 50], [95, 50, 50]])
    assert remarks(found, held, strengths=("strength", "kd")) == (
        "no better than chance once learned in 2 of 3 tasks (2, 3), try another learning rate or "
        "a weaker hold (method.strength, method.kd)",
    )
    first = AccuracyMatrix([[50], [50, 95]])  # nothing was held yet
    assert remarks(found, first, strengths=("strength",))[0].endswith("another learning rate")


def test_a_run_that_is_held_too_firmly_names_the_methods_strength(tmp_path: Path) -> None:
    options = {"rule": "ratio", "a": 1e-6}  # no direction is free
    rates = {"name": "sgd", "lr": 1e-9, "head_lr": 1e-9, "epochs": 1}
    held = nscl.run(small("adam-nscl", tmp_path, optim=rates, options=options))
    assert held.remarks[-1].endswith("another learning rate or a weaker hold (method.a)")


def test_only_finished_tasks_count() -> None:
    found = stream(*(task(i, [0, 1] * 50, 2) for i in range(3)))
    assert "(1)" in remarks(found, AccuracyMatrix([[50]]))[0]
    assert remarks(found, AccuracyMatrix()) == ()


@pytest.mark.parametrize("labels", [[0, 1] * 40, [0] * 70 + [1] * 30, [0, 1, 2, 3] * 25])
def test_guessing_stays_below_the_level_in_most_draws(labels: list[int]) -> None:
    """Against draws: one who names the commonest class with fresh labels of the same shares."""
    torch.manual_seed(0)
    counts = torch.tensor([float(n) for _, n in sorted(Counter(labels).items())])
    drawn = torch.multinomial(counts, len(labels) * 2000, replacement=True).view(2000, -1)
    hits = 100.0 * (drawn == int(counts.argmax())).double().mean(1)
    assert 0.94 < float((hits <= chance(torch.tensor(labels))).double().mean()) < 0.999


def test_a_rate_that_ends_at_chance_stands_in_the_result(tmp_path: Path) -> None:
    lost = nscl.run(small("finetune", tmp_path, optim={"name": "sgd", "lr": 1e-9, "epochs": 1}))
    assert "no better than chance" in lost.remarks[-1]
    assert Result.read(tmp_path / lost.directory).remarks == lost.remarks
    fine = nscl.run(small("finetune", tmp_path, data={"first": 1}))
    assert fine.remarks == ()


def dark_after_light() -> TaskStream:
    """Two easy tasks: noise with a light or a heavy grain, then the same as faint pictures."""
    torch.manual_seed(0)

    def split(light: float) -> Split:
        noise = torch.rand(64, 1, 8, 8)
        noise[::2] = noise[::2].round()
        return Split((light * noise).to(torch.uint8), (torch.arange(64) + 1) % 2)

    tasks = [Task(i, f"task {i}", split(light), split(light), (0, 1), ("heavy", "light"))
             for i, light in enumerate((250.0, 10.0))]  # fmt: skip
    return TaskStream("shades", tuple(tasks), "task", (0.5,), (0.3,))


@pytest.mark.parametrize("bn_stats", ["shared", "frozen", "per_task"])
def test_statistics_that_moved_far_stand_in_the_result_and_the_log(
    bn_stats: str, tmp_path: Path
) -> None:
    given = {"model": {"name": "convnet", "width": 4}, "bn_stats": bn_stats, "data": {"first": 2},
             "optim": {"epochs": 12, "batch_size": 16}}  # fmt: skip
    config = small("adam-nscl", tmp_path, **given)
    result = nscl.run(config, stream=dark_after_light())
    log = read_metrics(tmp_path / result.directory / "metrics.jsonl")
    *_, last = (record for record in log if record["kind"] == "task")
    moved = [text for text in result.remarks if text.startswith("running statistics moved")]
    assert last["remarks"] == moved
    assert len(moved) == (bn_stats == "shared")
    assert all("in 1 of 2 tasks (2)" in text for text in moved)


def test_the_load_is_recorded_and_survives_a_result_of_an_older_version(tmp_path: Path) -> None:
    result = nscl.run(small("finetune", tmp_path, data={"first": 1}, optim={"epochs": 1}))
    assert isinstance(result.environment["load_while_running"], float)
    old = {k: v for k, v in result.to_dict().items() if k != "remarks"}
    assert Result.from_dict(old) == replace(result, remarks=())
