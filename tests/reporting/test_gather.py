"""Runs are found wherever people put them, each once, and nothing is passed over in silence."""

import shutil
from pathlib import Path

import pytest

from nscl.reporting import ReportError, gather
from tests.reporting.making import make_run


def names(*paths: Path) -> list[str]:
    return sorted(run.name for run in gather(paths).runs)


def test_a_run_a_folder_a_folder_of_folders_and_a_result_file(tmp_path: Path) -> None:
    first = make_run(tmp_path / "deep" / "down" / "a", "finetune", 0)
    second = make_run(tmp_path / "deep" / "b", "finetune", 1)
    assert names(tmp_path) == sorted([first.name, second.name])
    assert names(first.path) == [first.name]
    assert names(second.result_path) == [second.name]
    copy = tmp_path / "mine.json"
    shutil.copy(second.result_path, copy)
    assert names(copy) == [second.name]
    assert gather([copy]).runs[0].directory is None
    assert names(first.path, first.path.parent, first.path) == [first.name]


def test_a_copy_of_a_run_counts_once_and_is_reported(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs")
    shutil.copytree(run.path, tmp_path / "copies" / run.name)
    found = gather([tmp_path])
    assert len(found.runs) == 1
    assert [reason for _, reason in found.skipped] == [
        f"the same run as another one given: {run.name}"
    ]


def test_what_does_not_exist_is_an_error() -> None:
    with pytest.raises(ReportError, match="nowhere does not exist"):
        gather(["nowhere"])


@pytest.mark.parametrize("damage", ["result.json", "metrics.jsonl", "config.json"])
def test_a_damaged_run_is_reported_and_the_others_are_read(tmp_path: Path, damage: str) -> None:
    good = make_run(tmp_path, "finetune", 0)
    bad = make_run(tmp_path, "finetune", 1)
    (bad.path / damage).write_text("{\n")
    found = gather([tmp_path])
    assert [run.name for run in found.runs] == [good.name]
    assert [path for path, _ in found.skipped] == [bad.path]
    assert damage in found.skipped[0].reason
