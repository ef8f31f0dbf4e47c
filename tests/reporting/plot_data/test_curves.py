"""Curves, step times and losses of old tasks, against slow and obvious computations."""

import statistics
from pathlib import Path

import pytest

from nscl.reporting import Section, gather, sections
from nscl.reporting.plot_data.curves import (
    acc_curve,
    mean_matrix,
    old_losses,
    step_times,
    task_curve,
)
from nscl.results import MetricsLog, RunDirectory
from tests.reporting.making import EPOCHS, TASKS, epochs, make_run, matrix


def test_curves(section: Section) -> None:
    both = [matrix("finetune", seed) for seed in (0, 1)]
    curve = acc_curve(section.series[0])
    truth = [[statistics.fmean(m.rows[i][: i + 1]) for m in both] for i in range(TASKS)]  # type: ignore[type-var]
    assert [p.mean for p in curve] == pytest.approx([statistics.fmean(t) for t in truth])
    assert [p.std for p in curve] == pytest.approx([statistics.stdev(t) for t in truth])
    task = task_curve(section.series[0], 1)
    assert [p.mean for p in task] == pytest.approx(
        [statistics.fmean(m.rows[i][1] for m in both) for i in range(1, TASKS)]  # type: ignore[misc]
    )
    assert mean_matrix(section.series[0])[-1][0] == pytest.approx(
        statistics.fmean(m.rows[-1][0] for m in both)  # type: ignore[misc]
    )


def test_step_times_leave_out_each_tasks_preparation(section: Section) -> None:
    times = step_times(section.series[0])
    assert [p.mean for p in times] == pytest.approx([10.0 * (t + 1) for t in range(TASKS)])


def test_a_pause_in_one_epoch_is_not_taken_for_a_slow_method(tmp_path: Path) -> None:
    """Each phase by its own median: 1 and 3 s for 10 steps, as often, though one took 500 s."""
    took = [("warm-up", 9), ("warm-up", 1), ("warm-up", 1), ("warm-up", 1)]
    took += [("train", 3), ("train", 500), ("train", 3)]
    run = make_run(tmp_path, "ewc", finished=False, tasks=1)
    with MetricsLog(run.metrics_path) as log:
        for number, (phase, _) in enumerate(took):
            seconds = sum(each for _, each in took[: number + 1])
            given = {"epoch": number, "steps": 10 * (EPOCHS + number + 1), "seconds": seconds}
            log.append({"kind": "epoch", "task": 1, "phase": phase, "loss": 0.5, **given})
    (section,) = sections(gather([tmp_path]).runs)
    assert [p.mean for p in step_times(section.series[0])] == pytest.approx([10, 200])


def test_old_losses_begin_with_their_task(section: Section) -> None:
    found = old_losses(section.series[0])
    assert len(found.curves) == 3
    assert found.places[: EPOCHS + 1] == pytest.approx([1 / 3, 2 / 3, 1.0, 4 / 3])
    assert found.curves[2][: 2 * EPOCHS] == [None] * 2 * EPOCHS
    assert found.curves[2][2 * EPOCHS] == pytest.approx(0.3)


def begin_task(run: RunDirectory, task: int, epochs_done: int) -> None:
    with MetricsLog(run.metrics_path) as log:
        for record in epochs(task + 1, tracked=3)[task * EPOCHS :][:epochs_done]:
            log.append(record)


def test_an_open_task_takes_its_part_of_the_axis(tmp_path: Path) -> None:
    begin_task(make_run(tmp_path, "ewc", finished=False, tasks=2, tracked=3), 2, 1)
    begin_task(make_run(tmp_path, "lwf", finished=False, tasks=2, tracked=3), 2, 2)
    (section,) = sections(gather([tmp_path]).runs)
    ewc, lwf = map(old_losses, section.series)
    assert ewc.places == pytest.approx([1 / 3, 2 / 3, 1, 4 / 3, 5 / 3, 2, 7 / 3])
    assert lwf.places[-1] == pytest.approx(8 / 3)
    assert (ewc.begun, lwf.begun) == (3, 3)
    # The first epoch of a task holds its preparation, and tells no time yet.
    assert [len(step_times(series)) for series in section.series] == [2, 3]


def test_seeds_at_different_epochs_of_a_task(tmp_path: Path) -> None:
    for seed, done in enumerate((1, 2)):
        begin_task(make_run(tmp_path, "ewc", seed, finished=False, tasks=2, tracked=3), 2, done)
    (section,) = sections(gather([tmp_path]).runs)
    assert old_losses(section.series[0]).places[-2:] == pytest.approx([2, 7 / 3])
