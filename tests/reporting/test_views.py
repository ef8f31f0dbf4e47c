"""The numbers behind the pictures, against slow and obvious ones."""

import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nscl.reporting import MissingDataError, Section, gather, sections, views
from nscl.reporting.figures.trials import sweep as draw_sweep
from nscl.reporting.looks import looks, some
from nscl.reporting.missing import left_out
from nscl.reporting.payload import payload
from nscl.reporting.spectral import evenly, layer_names, short_names, spectra, table
from nscl.results import MetricsLog, RunDirectory
from tests.reporting.making import EPOCHS, TASKS, epochs, make_run, matrix


@pytest.fixture
def section(lab: Path) -> Section:
    (found,) = sections(gather([lab]).runs)
    return found


def test_curves(section: Section) -> None:
    both = [matrix("finetune", seed) for seed in (0, 1)]
    curve = views.acc_curve(section.series[0])
    truth = [[statistics.fmean(m.rows[i][: i + 1]) for m in both] for i in range(TASKS)]  # type: ignore[type-var]
    assert [p.mean for p in curve] == pytest.approx([statistics.fmean(t) for t in truth])
    assert [p.std for p in curve] == pytest.approx([statistics.stdev(t) for t in truth])
    task = views.task_curve(section.series[0], 1)
    assert [p.mean for p in task] == pytest.approx(
        [statistics.fmean(m.rows[i][1] for m in both) for i in range(1, TASKS)]  # type: ignore[misc]
    )
    assert views.mean_matrix(section.series[0])[-1][0] == pytest.approx(
        statistics.fmean(m.rows[-1][0] for m in both)  # type: ignore[misc]
    )


def test_step_times_leave_out_each_tasks_preparation(section: Section) -> None:
    times = views.step_times(section.series[0])
    assert [p.mean for p in times] == pytest.approx([10.0 * (t + 1) for t in range(TASKS)])


def test_a_pause_in_one_epoch_is_not_taken_for_a_slow_method(tmp_path: Path) -> None:
    """Each phase by its own median: 1 and 3 s for 10 steps, as often, though one took 500 s."""
    took = [("warm-up", 9), ("warm-up", 1), ("warm-up", 1), ("warm-up", 1)]
    took += [("train", 3), ("train", 500), ("train", 3)]
    run = make_run(tmp_path, "ewc", finished=False, tasks=1)
    with MetricsLog(run.metrics_path) as log:
        for number, (phase, _) in enumerate(took):
            seconds = sum(each for _, each in took[: number + 1])
            said = {"epoch": number, "steps": 10 * (EPOCHS + number + 1), "seconds": seconds}
            log.append({"kind": "epoch", "task": 1, "phase": phase, "loss": 0.5, **said})
    (section,) = sections(gather([tmp_path]).runs)
    assert [p.mean for p in views.step_times(section.series[0])] == pytest.approx([10, 200])


def test_old_losses_begin_with_their_task(section: Section) -> None:
    found = views.old_losses(section.series[0])
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
    ewc, lwf = map(views.old_losses, section.series)
    assert ewc.places == pytest.approx([1 / 3, 2 / 3, 1, 4 / 3, 5 / 3, 2, 7 / 3])
    assert lwf.places[-1] == pytest.approx(8 / 3)
    assert (ewc.begun, lwf.begun) == (3, 3)
    # The first epoch of a task holds its preparation, and tells no time yet.
    assert [len(views.step_times(series)) for series in section.series] == [2, 3]


def test_seeds_at_different_epochs_of_a_task(tmp_path: Path) -> None:
    for seed, done in enumerate((1, 2)):
        begin_task(make_run(tmp_path, "ewc", seed, finished=False, tasks=2, tracked=3), 2, done)
    (section,) = sections(gather([tmp_path]).runs)
    assert views.old_losses(section.series[0]).places[-2:] == pytest.approx([2, 7 / 3])


def test_sweeps_stay_when_something_else_was_varied_too(tmp_path: Path) -> None:
    for a in (10.0, 20.0, 30.0):
        make_run(tmp_path, "adam-nscl", a=a, norms="ewc", lr=1)
    make_run(tmp_path, "adam-nscl", a=20.0, norms="freeze", lr=1)
    (section,) = sections(gather([tmp_path]).runs)
    (sweep,) = views.sweeps(section)
    assert (sweep.option, sweep.values, sweep.beside) == ("a", [10.0, 20.0, 30.0], "")
    assert {s.settings["options.norms"] for s in sweep.series} == {"ewc"}
    for a in (30.0, 40.0):
        make_run(tmp_path, "adam-nscl", a=a, norms="freeze", lr=1)
    make_run(tmp_path, "adam-nscl", a=50.0, norms="ewc", lr=1)
    (section,) = sections(gather([tmp_path]).runs)
    (chart,) = views.together(views.sweeps(section))
    assert [(each.beside, each.values) for each in chart] == [
        ("", [10.0, 20.0, 30.0, 50.0]), ("norms=freeze", [20.0, 30.0, 40.0]),
    ]  # fmt: skip


def test_a_rate_that_is_not_said_has_its_place_in_a_sweep(tmp_path: Path) -> None:
    """None is the first task's rate: a point of the curve, not a hole in it."""
    for scale, rates in (("a", (None, 0.001, 0.1)), ("b", (None, 0.02, 0.03))):
        for rate in rates:
            optim = {"optim": {"lr": 0.01, "later_lr": rate}}
            make_run(tmp_path, "adam-nscl", settings=optim, scale=scale)
    (section,) = sections(gather([tmp_path]).runs)
    plain, scaled = views.sweeps(section)
    assert (plain.option, plain.values) == ("optim.later_lr", [0.001, 0.01, 0.1])
    assert (scaled.option, scaled.values) == ("optim.later_lr", [0.01, 0.02, 0.03])
    assert [s.settings["optim.later_lr"] for s in plain.series] == [0.001, None, 0.1]


def test_a_first_rate_is_swept_with_the_later_one_that_follows_it(tmp_path: Path) -> None:
    for rate in (0.001, 0.01):
        make_run(tmp_path, "adam-nscl", settings={"optim": {"lr": rate, "later_lr": None}})
    (sweep,) = views.sweeps(sections(gather([tmp_path]).runs)[0])
    assert (sweep.option, sweep.values) == ("optim.lr", [0.001, 0.01])


def test_the_scale_is_that_of_all_lines_of_a_chart(tmp_path: Path) -> None:
    """Neither line spans a factor of 20, both together do."""
    for norms, values in (("ewc", (1.0, 2.0, 4.0, 5.0)), ("freeze", (10.0, 20.0, 30.0))):
        for a in values:
            make_run(tmp_path, "adam-nscl", a=a, norms=norms)
    (section,) = sections(gather([tmp_path]).runs)
    (chart,) = views.together(views.sweeps(section))
    assert not any(views.logarithmic([line]) for line in chart)
    assert views.logarithmic(chart)
    assert payload(section)["sweeps"][0]["log"]
    assert {ax.get_xscale() for ax in draw_sweep(chart).axes} == {"log"}


def test_sweeps_need_one_numeric_difference(section: Section, tmp_path: Path) -> None:
    (sweep,) = views.sweeps(section)
    assert (sweep.method, sweep.option, sweep.values) == ("adam-nscl", "a", [10.0, 1000.0])
    assert views.logarithmic([sweep])
    make_run(tmp_path, "adam-nscl", a=1.0, rule="ratio")
    make_run(tmp_path, "adam-nscl", a=2.0, rule="energy")
    (other,) = sections(gather([tmp_path]).runs)
    with pytest.raises(MissingDataError, match=r"--method\.a"):
        views.sweeps(other)


def test_r_and_free_directions(section: Section) -> None:
    run, tasks = spectra(section.series[2])
    raw = run.spectra()
    assert layer_names(tasks) == ["backbone.layers.0", "backbone.layers.1"]
    for task in range(TASKS):
        for row, name in enumerate(layer_names(tasks)):
            values, weights = raw[task][name]["eigenvalues"][0], raw[task][name]["weights"][0]
            freed = sum(v for v, w in zip(values, weights, strict=True) if w == 1)
            assert table(tasks, "share")[row][task] == pytest.approx(freed / values.sum())
            assert table(tasks, "free")[row][task] == weights.sum() / len(weights)
            assert np.all(np.diff(tasks[task][name].values) <= 0)


def test_every_missing_figure_has_its_reason(tmp_path: Path, section: Section) -> None:
    assert left_out(section) == []
    run = make_run(tmp_path, tasks=1)
    (alone,) = sections(gather([run.result_path]).runs)
    told = {figure.name: figure.reason for figure in left_out(alone)}
    assert "2 finished tasks" in told["acc-after-task"]
    assert "metrics.jsonl" in told["step-time"]
    assert "--track-old-losses 3" in told["old-losses"]
    assert "spectra.npz" in told["singular-values"]
    assert "accuracy-matrix" not in told
    assert not any("finetune" in reason for reason in told.values())  # it is so of all series


def test_looks_are_distinct_and_bounds_neutral(section: Section) -> None:
    found = looks(section)
    assert len(set(found)) == len(found)
    assert found[0].colour == 6  # fine-tuning is grey


def test_colour_and_marker_alone_tell_54_series_apart() -> None:
    assert len({(look.colour, look.marker) for look in some(54)}) == 54


@given(st.integers(1, 500), st.integers(2, 60))
def test_evenly_keeps_both_ends_and_order(count: int, most: int) -> None:
    kept = evenly(count, most)
    assert kept == sorted(set(kept))
    assert len(kept) == min(count, most)
    assert (kept[0], kept[-1]) == (0, count - 1)


def test_short_names_keep_what_differs() -> None:
    assert short_names(["a.b.conv1", "a.b.conv2", "a.c"]) == ["b.conv1", "b.conv2", "c"]
    assert short_names(["backbone.s.0.w", "backbone.s.1.w"]) == ["s.0.w", "s.1.w"]
