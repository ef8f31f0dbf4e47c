"""Runs that differ in their seed only are one series; what is not alike is reported."""

import statistics
from pathlib import Path

import pytest

from nscl.reporting import gather, sections
from tests.reporting.making import make_run


def test_an_unfinished_run_shows_its_tasks_so_far(tmp_path: Path) -> None:
    run = make_run(tmp_path, finished=False, tasks=2)
    (found,) = gather([run.path]).runs
    assert not found.finished
    assert found.accuracy.tasks == 2
    (section,) = sections([found])
    assert section.series[0].figure("acc") is None
    assert section.shown[0].shown == (found,)


def test_series_are_what_differs_in_more_than_the_seed(lab: Path) -> None:
    (section,) = sections(gather([lab]).runs)
    assert [(s.label, len(s.runs)) for s in section.series] == [
        ("finetune", 2), ("gem", 2), ("adam-nscl (a=10)", 2), ("adam-nscl (a=1000)", 2),
    ]  # fmt: skip
    assert section.unlike == ()
    assert section.twins == ()


def test_the_same_seed_twice_counts_once(tmp_path: Path) -> None:
    plain = make_run(tmp_path, seed=0)
    watched = make_run(tmp_path, seed=0, tracked=2)
    (section,) = sections(gather([tmp_path]).runs)
    assert [run.name for run in section.series[0].runs] == [watched.name]
    assert [run.name for run in section.twins] == [plain.name]


def test_what_is_not_alike_is_reported(tmp_path: Path) -> None:
    make_run(tmp_path, "finetune")
    make_run(tmp_path, "gem", settings={"bn_stats": "frozen"})
    (section,) = sections(gather([tmp_path]).runs)
    assert section.unlike == ("bn_stats",)


def test_figures_of_a_series_are_those_of_its_finished_runs(tmp_path: Path) -> None:
    made = [make_run(tmp_path, "gem", seed, stores="data") for seed in range(2)]
    make_run(tmp_path, "gem", 2, finished=False, tasks=2)
    (section,) = sections(gather([tmp_path]).runs)
    (series,) = section.series
    accs = [run.result().acc for run in made]
    found = series.figure("acc")
    assert found is not None
    assert found.mean == pytest.approx(statistics.fmean(accs))
    assert found.std == pytest.approx(statistics.stdev(accs))
    assert [run.seed for run in series.shown] == [0, 1]
    assert (series.stores, series.tasks, series.memory_ratio()) == ("data", 4, (1.5, 0.0))
