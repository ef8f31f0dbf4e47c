"""The folder of a report: its own files are replaced, those of others stay or are refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nscl.reporting import ReportError
from nscl.reporting.folder import KIND, ReportFolder

MINE = {"kind": KIND, "files": []}


def contents(folder: Path) -> dict[str, bytes]:
    return {f.name: f.read_bytes() for f in folder.iterdir()}


def manifest(out: Path, record: object) -> None:
    (out / "manifest.json").write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda out: (out / "thesis.tex").write_text("x"), "holds something that is not a report"),
        (lambda out: manifest(out, {}), "is not that of a report"),
        (lambda out: (out / "manifest.json").write_text("{"), "choose another --out"),
        (lambda out: manifest(out, MINE | {"files": ["../../precious"]}), "is not that of a"),
        (lambda out: manifest(out, MINE | {"files": ["/precious"]}), "is not that of a report"),
        (
            lambda out: [manifest(out, MINE), (out / "tables.md").write_text("mine")],
            "was not made by nscl report",
        ),
    ],
)
def test_a_folder_of_something_else_is_refused(
    tmp_path: Path, prepare: Callable[[Path], object], message: str
) -> None:
    prepare(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(ReportError, match=message):
        ReportFolder(tmp_path).check(["tables.md"])
    assert contents(tmp_path) == before


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report").write_text("mine")
    with pytest.raises(ReportError, match="is a file: choose another --out"):
        ReportFolder(tmp_path / "report")


def test_files_of_the_earlier_report_go_and_those_of_others_stay(tmp_path: Path) -> None:
    first = ReportFolder(tmp_path)
    first.write("old.md", "old")
    first.write("both.md", "first")
    first.finish()
    (tmp_path / "notes.txt").write_text("mine")
    second = ReportFolder(tmp_path)
    second.write("both.md", "second")
    assert set(json.loads((tmp_path / "manifest.json").read_text())["files"]) == {
        "old.md",
        "both.md",
    }  # killed here, the next report would still know what is its own
    second.finish()
    found = contents(tmp_path)
    assert json.loads(found.pop("manifest.json"))["files"] == ["both.md"]
    assert found == {"both.md": b"second", "notes.txt": b"mine"}


def test_a_figure_stays_while_it_would_show_the_same_and_its_file_is_untouched(
    tmp_path: Path,
) -> None:
    first = ReportFolder(tmp_path)
    for name in ("same.svg", "other.svg", "edited.svg", "gone.svg"):
        first.write(f"figures/{name}", name, digest="shown")
    first.finish()
    (tmp_path / "figures" / "edited.svg").write_text("by hand")
    (tmp_path / "figures" / "gone.svg").unlink()
    second = ReportFolder(tmp_path)
    assert second.keep("figures/same.svg", "shown")
    assert not second.keep("figures/other.svg", "something else")
    assert not second.keep("figures/edited.svg", "shown")
    assert not second.keep("figures/gone.svg", "shown")
    second.finish()
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"same.svg"}
