"""Runs are found wherever people put them, each once, and nothing is passed over in silence."""

import shutil
from pathlib import Path

import pytest

from nscl.reporting import ReportError, gather, sections
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


def test_foreign_records_are_reported(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.metrics_path.write_text(
        run.metrics_path.read_text().replace('"task": 0', '"task": "one"', 1)
    )
    reason = gather([tmp_path]).skipped[0].reason
    assert "line 1: task must be a whole number, got 'one'" in reason


def test_an_epoch_without_its_phase_is_reported(tmp_path: Path) -> None:
    good = make_run(tmp_path, "gem")
    bad = make_run(tmp_path)
    bad.metrics_path.write_text(bad.metrics_path.read_text().replace('"phase": "train", ', "", 1))
    found = gather([tmp_path])
    assert [run.name for run in found.runs] == [good.name]
    assert "line 1 is incomplete: it lacks phase" in found.skipped[0].reason


@pytest.mark.parametrize("losses", ["null", "[0.1, null]", "[NaN]", "[Infinity]", "0.5"])
def test_losses_that_are_no_numbers_are_reported(tmp_path: Path, losses: str) -> None:
    good = make_run(tmp_path, "gem", tracked=2)
    bad = make_run(tmp_path, tracked=2)
    lines = bad.metrics_path.read_text().splitlines()
    lines[1] = lines[1].replace('"old_losses": [0.1]', f'"old_losses": {losses}')
    bad.metrics_path.write_text("\n".join(lines) + "\n")
    found = gather([tmp_path])
    assert [run.name for run in found.runs] == [good.name]
    assert "line 2: old_losses" in found.skipped[0].reason


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
