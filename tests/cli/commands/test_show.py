"""``nscl show``: the figures of a run from its files, finished or not."""

from dataclasses import replace
from pathlib import Path

import pytest

from nscl.cli.app import call
from tests.cli.calling import check_refused
from tests.reporting.making import make_run, matrix


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_a_finished_run_has_its_matrix_figures_remarks_and_spectra(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path, "adam-nscl", tasks=3, layers={"backbone.one": 9})
    found = replace(run.result(), remarks=("no better than chance [in 1 task]",))
    run.result_path.unlink()
    run.write_result(found)
    assert call(["show", str(run.path)]) == 0
    output = capsys.readouterr().out
    truth = matrix("adam-nscl", 0, 3)
    assert "adam-nscl on split-digits-5, seed 0, preset quick\n" in output
    for row in truth.rows:
        assert " ".join(f"{value:.1f}" for value in row) in " ".join(output.split())
    assert f"ACC {truth.acc:.2f} %   BWT {truth.bwt:+.2f}   " in output
    assert "12.5 s   (finished)" in output
    assert "remark: no better than chance [in 1 task]\n" in output
    assert "spectra of what is held after task 3" in output
    assert "backbone.one" in output


def test_a_run_that_goes_on_shows_its_tasks_so_far(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path, tasks=2, finished=False)
    assert call(["show", str(run.path)]) == 0
    assert "2.0 s   (2 tasks so far)" in capsys.readouterr().out
    run.metrics_path.unlink()
    assert call(["show", str(run.path)]) == 0
    assert "no task is finished yet\n" in capsys.readouterr().out


def test_a_folder_without_a_run_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_refused(("show", "nowhere"), "nowhere is not a run", here, capsys)
