"""The numbers behind the pictures, against slow and obvious ones."""

import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nscl.reporting import MissingDataError, Section, gather, sections, views
from nscl.reporting.looks import looks
from nscl.reporting.missing import left_out
from nscl.reporting.spectral import evenly, layer_names, short_names, spectra, table
from tests.reporting.making import EPOCHS, TASKS, make_run, matrix


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


def test_old_losses_begin_with_their_task(section: Section) -> None:
    found = views.old_losses(section.series[0])
    assert len(found.curves) == 3
    assert found.places[: EPOCHS + 1] == pytest.approx([1 / 3, 2 / 3, 1.0, 4 / 3])
    assert found.curves[2][: 2 * EPOCHS] == [None] * 2 * EPOCHS
    assert found.curves[2][2 * EPOCHS] == pytest.approx(0.3)


def test_sweeps_need_one_numeric_difference(section: Section, tmp_path: Path) -> None:
    (sweep,) = views.sweeps(section)
    assert (sweep.method, sweep.option, sweep.values) == ("adam-nscl", "a", [10.0, 1000.0])
    assert sweep.logarithmic
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


def test_looks_are_distinct_and_bounds_neutral(section: Section) -> None:
    found = looks(section)
    assert len(set(found)) == len(found)
    assert found[0].colour == 6  # fine-tuning is grey


@given(st.integers(1, 500), st.integers(2, 60))
def test_evenly_keeps_both_ends_and_order(count: int, most: int) -> None:
    kept = evenly(count, most)
    assert kept == sorted(set(kept))
    assert len(kept) == min(count, most)
    assert (kept[0], kept[-1]) == (0, count - 1)


def test_short_names_keep_what_differs() -> None:
    assert short_names(["a.b.conv1", "a.b.conv2", "a.c"]) == ["b.conv1", "b.conv2", "c"]
    assert short_names(["backbone.s.0.w", "backbone.s.1.w"]) == ["s.0.w", "s.1.w"]
