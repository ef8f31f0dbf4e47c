"""Where numbers come from, and what was not recorded."""

from pathlib import Path
from typing import Any

from nscl.reporting import gather, sections
from nscl.reporting.tables.provenance import provenance
from tests.reporting.making import make_run

WHOLE: dict[str, Any] = {
    "date": "2026-01-31T10:00Z", "commit": "0123456789ab", "nscl": "0.1.0",
    "processor": "A processor", "torch": "2.13.0",
}  # fmt: skip


def parts(root: Path) -> list[str]:
    (section,) = sections(gather([root]).runs)
    return provenance(section)


def test_everything_that_is_known_is_listed(tmp_path: Path) -> None:
    make_run(tmp_path, seed=0, environment=WHOLE)
    make_run(tmp_path, seed=3, environment=WHOLE | {"date": "2026-02-02T10:00Z"})
    assert parts(tmp_path) == [
        "seeds 0, 3", "2026-01-31 to 2026-02-02", "A processor", "torch 2.13.0", "nscl 0.1.0",
        "commit 0123456789ab",
    ]  # fmt: skip


def test_runs_of_older_versions_say_what_is_missing(tmp_path: Path) -> None:
    make_run(tmp_path, environment={"nscl": "0.1.0", "torch": "2.0"})
    assert parts(tmp_path) == [
        "seed 0", "torch 2.0", "nscl 0.1.0", "not recorded: date, processor, commit",
    ]  # fmt: skip


def test_many_commits_are_counted(tmp_path: Path) -> None:
    for seed in range(5):
        make_run(tmp_path, seed=seed, environment=WHOLE | {"commit": f"c{seed}"})
    assert parts(tmp_path)[-1] == "commit c0, c1, c2 and 2 more"


def test_unfinished_runs_have_no_numbers_to_explain(tmp_path: Path) -> None:
    make_run(tmp_path, finished=False, tasks=2)
    assert parts(tmp_path) == []
