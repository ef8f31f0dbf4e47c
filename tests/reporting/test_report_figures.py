"""Figures of a report: wanted or not, drawn only where something has changed, in any processes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nscl.reporting import ReportError, Written, figures, report, write_report
from nscl.results.records import spectra as spectra_file
from tests.reporting.making import make_run, matrix, result

LAYERS = {"one": 5}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the figures that are drawn, as they are drawn."""
    names: list[str] = []

    def watched(jobs: list[figures.Job], *, processes: int = 1) -> object:
        names.extend(plan.name for plan, _ in jobs)
        return figures.rendered(jobs, processes=processes)

    monkeypatch.setattr(report, "rendered", watched)
    return names


def contents(written: Written) -> dict[str, bytes]:
    folder = written.page.parent
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_a_second_report_of_the_same_runs_draws_nothing(tmp_path: Path, drawn: list[str]) -> None:
    run = make_run(tmp_path / "runs", "adam-nscl", tasks=1, layers=LAYERS)
    first = write_report([run.path], tmp_path / "report")
    before = contents(first)
    assert len(drawn) == 7
    drawn.clear()
    second = write_report([run.path], tmp_path / "report")
    assert drawn == []
    assert contents(second) == before
    assert set(second.files) == set(first.files)
    assert set(second.kept) == {name for name in first.files if name.startswith("figures/")}
    assert first.kept == ()


def test_a_changed_run_redraws_only_its_figures(tmp_path: Path, drawn: list[str]) -> None:
    changed = make_run(tmp_path / "runs", "adam-nscl", tasks=1, layers=LAYERS)
    make_run(tmp_path / "runs", "connector", tasks=1, layers=LAYERS)
    make_run(tmp_path / "runs", "finetune", tasks=1, benchmark="another")
    write_report([tmp_path / "runs"], tmp_path / "report")
    drawn.clear()

    spectra = spectra_file.read(changed.spectra_path)
    spectra[0]["one"]["weights"][0, -1] = 0.25
    spectra_file.write(changed.spectra_path, spectra)
    write_report([tmp_path / "runs"], tmp_path / "report")
    assert len(drawn) == 3
    assert all(name.endswith("1-adam-nscl") for name in drawn)
    drawn.clear()

    changed.result_path.unlink()
    changed.write_result(result(changed, matrix("adam-nscl", 7, 1), "nothing"))
    write_report([tmp_path / "runs"], tmp_path / "report")
    # Of its own section only, and no spectra.
    assert drawn == ["accuracy-matrix", "acc-bwt", "training-loss", "step-time"]


def test_an_open_marker_is_a_change(tmp_path: Path, drawn: list[str]) -> None:
    run = make_run(tmp_path / "runs", "gem", tasks=2)
    write_report([run.path], tmp_path / "report")
    drawn.clear()
    run.result_path.unlink()
    run.write_result(result(run, matrix("gem", 0, 2), "data"))
    write_report([run.path], tmp_path / "report")
    assert "acc-after-task" in drawn


def test_a_new_epoch_changes_only_what_shows_epochs(tmp_path: Path, drawn: list[str]) -> None:
    run = make_run(tmp_path / "runs", "finetune", tasks=2, finished=False)
    write_report([run.path], tmp_path / "report")
    drawn.clear()
    record = {"kind": "epoch", "task": 2, "phase": "train", "epoch": 0, "loss": 0.5}
    with run.metrics_path.open("a") as file:
        file.write(json.dumps(record | {"steps": 70, "seconds": 1.5}) + "\n")
    write_report([run.path], tmp_path / "report")
    assert drawn == ["training-loss", "step-time"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(file.read_bytes()[:-9]),
        lambda file: file.unlink(),
    ],
)
def test_a_damaged_or_missing_figure_is_drawn_again(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    run = make_run(tmp_path / "runs", "finetune", tasks=1)
    first = write_report([run.path], tmp_path / "report")
    before = contents(first)
    (name,) = (name for name in first.files if name.endswith("acc-bwt.png"))
    damage(tmp_path / "report" / name)
    second = write_report([run.path], tmp_path / "report")
    assert contents(second) == before
    assert name not in second.kept
    assert name.replace(".png", ".svg") in second.kept


def test_figures_of_an_earlier_version_are_drawn_again(
    tmp_path: Path, drawn: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "runs", "finetune", tasks=1)
    write_report([run.path], tmp_path / "report")
    monkeypatch.setattr(figures.digests, "_code", lambda: ["0.0.0"])
    drawn.clear()
    assert write_report([run.path], tmp_path / "report").kept == ()
    assert drawn
    manifest = tmp_path / "report" / "manifest.json"
    record = json.loads(manifest.read_text())
    del record["digests"]  # reports had none at first
    manifest.write_text(json.dumps(record))
    assert write_report([run.path], tmp_path / "report").kept == ()


def test_without_figures_there_are_none_and_the_page_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs", "finetune", tasks=1)
    out = tmp_path / "report"
    write_report([run.path], out)
    written = write_report([run.path], out, figures="none")
    assert not [name for name in written.files if "/" in name]
    assert not [*(out / "figures").iterdir()]
    assert "SVG and PNG files" in written.page.read_text()
    assert "SVG and PNG files" in {figure.name for _, figure in written.left_out}


def test_svg_alone_and_png_later(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs", "finetune", tasks=1)
    whole = write_report([run.path], tmp_path / "whole")
    written = write_report([run.path], tmp_path / "report", figures="svg")
    assert {Path(n).suffix for n in written.files if n.startswith("figures/")} == {".svg"}
    later = write_report([run.path], tmp_path / "report", figures="all")
    assert {Path(name).suffix for name in later.kept} == {".svg"}
    assert contents(later) == contents(whole)


def test_an_unknown_choice_of_figures_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="choose none, svg or all"):
        write_report([tmp_path], tmp_path / "report", figures="pdf")  # type: ignore[arg-type]
    assert not (tmp_path / "report").exists()


def test_one_process_and_two_make_the_same_bytes(tmp_path: Path) -> None:
    for method in ("adam-nscl", "connector"):
        make_run(tmp_path / "runs", method, tasks=1, layers=LAYERS)
    one = write_report([tmp_path / "runs"], tmp_path / "one")
    two = write_report([tmp_path / "runs"], tmp_path / "two", processes=2)
    assert contents(one) == contents(two)
    assert len(one.files) > 2 * 2 * figures.FEWEST  # enough figures for two processes


def test_matplotlib_is_imported_only_to_draw(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs", "finetune", tasks=1)
    write_report([run.path], tmp_path / "report")
    code = (
        "import sys\n"
        "from nscl.reporting import write_report\n"
        f"runs, out = [{str(run.path)!r}], {str(tmp_path / 'report')!r}\n"
        "assert len(write_report(runs, out, processes=2).kept) == 8\n"
        "write_report(runs, out, figures='none')\n"
        "assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


class _Fatal:
    """Ends the process that receives it, as the system does when memory is short."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (1,)


def test_a_process_that_is_ended_from_outside_is_named() -> None:
    job = figures.Plan("acc-bwt", "acc_bwt", (_Fatal(),)), ("svg",)
    with pytest.raises(ReportError, match="ended from outside"):
        list(figures.rendered([job] * 2 * figures.FEWEST, processes=2))
