"""What the page knows of runs that a reader may set side by side."""

from pathlib import Path

import pytest

from nscl.reporting import gather, sections
from nscl.reporting.page.pairs import pair_runs
from nscl.reporting.plot_data.training import run_losses
from tests.reporting.making import make_run


def test_runs_come_with_the_settings_in_which_they_differ(tmp_path: Path) -> None:
    for method, a in (("adam-nscl", 3.0), ("adam-nscl", 30.0)):
        make_run(tmp_path, method, a=a)
    make_run(tmp_path, "ewc", 1, finished=False)
    (section,) = sections(gather([tmp_path]).runs)
    found = pair_runs(section)
    runs = [run for series in section.series for run in series.runs]
    assert [each["name"] for each in found] == [run.name for run in runs]
    by_name = {run.name: run for run in runs}
    assert {each["settings"]["options.a"] for each in found} == {"3.0", "30.0", "–"}
    assert "benchmark" not in found[0]["settings"]  # the same in all
    for each in found:
        run = by_name[each["name"]]
        assert each["label"].endswith(" (unfinished)") is not run.finished
        for row, truth in zip(each["matrix"], run.accuracy.rows, strict=True):
            assert row == pytest.approx([value or 0.0 for value in truth], rel=1e-6)
        first = run_losses(run)[0]
        places = [place for place, _ in each["losses"] if place <= 1]
        assert places == pytest.approx([(i + 1) / len(first) for i in range(len(first))], abs=1e-3)


def test_a_run_without_a_finished_task_has_nothing_to_show(tmp_path: Path) -> None:
    make_run(tmp_path, "ewc")
    make_run(tmp_path, "lwf", finished=False, tasks=0)
    (section,) = sections(gather([tmp_path]).runs)
    assert [each["label"] for each in pair_runs(section)] == ["ewc, seed 0"]
