"""A whole report on disk: every file there and sound, replaced with care, made without torch."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nscl.reporting import Written, gather, sections, write_report
from nscl.reporting.page.html import render
from nscl.reporting.plot_data.missing import SPECTRAL
from nscl.results.records import spectra as spectra_file
from tests.reporting.making import make_run

FIGURES = {
    "accuracy-matrix", "acc-after-task", "task-accuracy", "acc-bwt", "training-loss", "step-time",
    "old-losses", "sweep-adam-nscl-a",
    *(f"{kind}-1-adam-nscl-a-10" for kind in SPECTRAL),
}  # fmt: skip


def test_every_figure_in_two_formats(written: Written) -> None:
    folder = written.page.parent
    names = {Path(f).name.removeprefix("split-digits-5-quick-") for f in written.files if "/" in f}
    assert names == {f"{name}.{kind}" for name in FIGURES for kind in ("svg", "png")}
    assert written.left_out == ()
    for file in (folder / "figures").glob("*.svg"):
        assert ET.parse(file).getroot().tag.endswith("svg")
    for file in (folder / "figures").glob("*.png"):
        with Image.open(file) as image:
            assert image.width >= 600  # a paper column at 180 dots per inch
            assert len(image.convert("L").resize((60, 60)).getcolors(256) or []) > 4


def test_the_manifest_knows_every_file(written: Written) -> None:
    folder = written.page.parent
    there = {str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file()}
    record = json.loads((folder / "manifest.json").read_text())
    assert set(record["files"]) == set(written.files) == there - {"manifest.json"}
    assert {"tables.md", "tables.tex", "tables.csv", "runs.csv", "report.html"} <= there


def test_a_report_is_replaced_and_what_is_foreign_stays(tmp_path: Path) -> None:
    out = tmp_path / "report"
    first = write_report([make_run(tmp_path / "a", "finetune", tasks=2).path], out)
    (out / "notes.txt").write_text("mine")
    second = write_report([make_run(tmp_path / "b", "finetune", tasks=1).path], out)
    gone = set(first.files) - set(second.files)
    assert any("acc-after-task" in name for name in gone)
    assert not any((out / name).exists() for name in gone)
    assert (out / "notes.txt").read_text() == "mine"
    assert {"acc-after-task", "sweep"} <= {figure.name for _, figure in second.left_out}


def test_the_same_runs_make_the_same_bytes(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs", "finetune", tasks=1)
    one, two = (write_report([run.path], tmp_path / name).page.parent for name in "ab")
    for file in one.rglob("*.*"):
        if file.is_file():
            assert file.read_bytes() == (two / file.relative_to(one)).read_bytes(), file


def test_a_report_inside_the_runs_is_no_run(tmp_path: Path) -> None:
    make_run(tmp_path, tasks=1)
    for _ in range(2):
        written = write_report([tmp_path], tmp_path / "report")
        assert (written.runs, written.skipped) == (1, ())


def test_names_that_become_one_are_numbered(tmp_path: Path) -> None:
    for benchmark in ("folder:/a/b", "folder:/a-b"):
        make_run(tmp_path / "runs", benchmark=benchmark, tasks=1)
    files = write_report([tmp_path / "runs"], tmp_path / "report").files
    both = {f"figures/folder-a-b-quick{tail}-accuracy-matrix.svg" for tail in ("", "-2")}
    assert both <= set(files)
    assert len(set(files)) == len(files)


@pytest.mark.parametrize("damage", ["empty", "eigenvalues", "weights", "truncated"])
def test_damaged_spectra_are_reported_and_the_rest_is_shown(tmp_path: Path, damage: str) -> None:
    good = make_run(tmp_path / "runs", "connector", tasks=2, layers={"one": 5})
    bad = make_run(tmp_path / "runs", "adam-nscl", tasks=2, layers={"one": 5})
    damage_spectra(bad.spectra_path, damage)
    written = write_report([good.path, bad.path], tmp_path / "report")
    shown = {figure.name: figure.reason for _, figure in written.left_out}
    assert bad.name in shown["spectra of adam-nscl"]
    assert any("residual-energy-1-connector" in name for name in written.files)
    assert "spectra of adam-nscl" in written.page.read_text()
    (section,) = sections(gather([good.path, bad.path]).runs)
    assert "spectra of adam-nscl" in render([section])  # the live page tells it too
    assert [len(series.finished) for series in section.series] == [1, 1]


def damage_spectra(path: Path, damage: str) -> None:
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-40])
    elif damage == "empty":
        spectra_file.write(path, {0: {}})
    else:
        found = spectra_file.read(path)
        found[1]["one"][damage][0, 2] = np.nan
        spectra_file.write(path, found)


def test_no_torch_is_imported(tmp_path: Path) -> None:
    run = make_run(tmp_path, tasks=1, layers={"one": 5})
    code = (
        "import sys\n"
        "class NoTorch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'torch': raise ImportError('torch is forbidden here')\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        "import nscl.reporting\n"
        "from nscl.cli.app import call\n"
        "assert 'matplotlib' not in sys.modules\n"
        f"code = call(['report', {str(run.path)!r}, '--out', {str(tmp_path / 'out')!r}])\n"
        "assert code == 0 and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_fifty_runs_of_many_layers_stay_under_five_megabytes(tmp_path: Path) -> None:
    layers = {f"stage{i // 4}.{i % 4}.conv": 120 for i in range(20)}
    for i in range(50):
        make_run(tmp_path, "adam-nscl", 0, tasks=5, tracked=3, layers=layers, a=float(i + 1))
    page = render(sections(gather([tmp_path]).runs))
    assert len(page.encode()) < 5_000_000
