"""Numbers of unlike streams never share a table, and published ones stand beside whole streams."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from nscl.reporting import gather, make_table, sections, write_report
from nscl.reporting.page.html import render
from nscl.reporting.tables.formats import csv_tables, markdown
from tests.reporting.making import make_run

WHOLE: dict[str, Any] = {"order": "natural", "order_seed": 0, "first": None, "scenario": None}


def run_on(root: Path, method: str, **data: Any) -> None:
    settings = {"data": WHOLE | data}
    make_run(root, method, benchmark="split-cifar100-10", tasks=data.get("first") or 4,
             settings=settings)  # fmt: skip


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"first": 3}, "first 3 tasks"),
        ({"first": 1}, "first task"),
        ({"tasks": 4}, "classes in 4 tasks"),
        ({"order": "random", "order_seed": 2}, "random order 2"),
        ({"scenario": "domain"}, "domain scenario"),
        ({"scenario": "class", "first": 3}, "first 3 tasks, one growing head"),
        ({"size": 64}, "64 pixels"),
        ({"holdout": 0.1}, "tested on 0.1 of the training data"),
        ({"digest": "0123456789abcdef"}, "stream 01234567"),
    ],
)
def test_every_stream_has_its_section(tmp_path: Path, data: dict[str, Any], words: str) -> None:
    run_on(tmp_path, "gem")
    run_on(tmp_path, "gem", **data)
    whole, other = sections(gather([tmp_path]).runs)
    assert (whole.title, other.title) == (
        "split-cifar100-10, quick", f"split-cifar100-10, quick, {words}"
    )  # fmt: skip
    assert [series.label for series in (*whole.series, *other.series)] == ["gem", "gem"]
    assert any(column.published for column in make_table(whole).columns)
    assert not any(column.published for column in make_table(other).columns)
    assert "Published" not in markdown([make_table(other)])
    assert f"preset quick, {words}</span></h2>" in render([whole, other])


def test_files_and_numbers_tell_their_stream(tmp_path: Path) -> None:
    run_on(tmp_path / "runs", "gem")
    run_on(tmp_path / "runs", "gem", first=2)
    found = sections(gather([tmp_path]).runs)
    rows = list(csv.DictReader(io.StringIO(csv_tables(map(make_table, found)))))
    assert [row["stream"] for row in rows] == ["", "first 2 tasks"]
    files = write_report([tmp_path / "runs"], tmp_path / "report").files
    assert "figures/split-cifar100-10-quick-acc-bwt.png" in files
    assert "figures/split-cifar100-10-quick-first-2-tasks-acc-bwt.png" in files


def test_an_order_that_is_not_used_makes_no_stream(tmp_path: Path) -> None:
    run_on(tmp_path, "gem")
    run_on(tmp_path, "ewc", order_seed=5)
    assert len(sections(gather([tmp_path]).runs)) == 1
