"""Seconds of a busy machine are not compared: a spread is shown, or no column."""

from pathlib import Path
from typing import Any

import pytest

from nscl.reporting import Section, gather, make_table, sections
from nscl.reporting.page.charts.curves import time_card
from nscl.reporting.tables.timing import caveat, is_quiet, load_of_others
from tests.reporting.making import make_run

QUIET = {"cpus": 2, "load": 0.1, "load_while_running": 1.2}
BUSY = {"cpus": 2, "load": 0.1, "load_while_running": 2.9}


def section(root: Path, *environments: dict[str, Any], seeds: int = 1) -> Section:
    for i, environment in enumerate(environments):
        for seed in range(seeds):
            make_run(root, ("ewc", "lwf", "gem")[i], seed, environment=environment)
    (found,) = sections(gather([root]).runs)
    return found


def has_times(found: Section) -> bool:
    return "ms_per_step" in [column.key for column in make_table(found).columns]


def test_a_quiet_machine_needs_no_caveat(tmp_path: Path) -> None:
    found = section(tmp_path, QUIET, QUIET)
    assert has_times(found)
    assert caveat(found.series) == ""
    assert [card.title for card in time_card(found)] == ["Time per step"]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (BUSY, "1 of 2 runs shared their machine (up to 1.9 processors were at other work)"),
        ({}, "1 of 2 runs recorded the load of its machine"),
    ],
)
def test_one_busy_or_unknown_run_is_enough(
    tmp_path: Path, other: dict[str, Any], words: str
) -> None:
    found = section(tmp_path, QUIET, other)
    assert not has_times(found)
    assert caveat(found.series) == f"{words}: the time of a step is left out."
    assert [card.title.partition(" (")[2][:5] for card in time_card(found)] == ["rough"]


def test_where_every_row_shows_a_spread_times_stay_with_a_caveat(tmp_path: Path) -> None:
    found = section(tmp_path, BUSY, BUSY, seeds=2)
    assert has_times(found)
    assert caveat(found.series).endswith("at other work): seconds are rough.")
    assert not is_quiet(found.series)


def test_threads_of_the_run_are_not_work_of_others() -> None:
    assert load_of_others({"cpus": 4, "threads": None, "load_while_running": 4.0}) == 0.0
    assert load_of_others({"cpus": 4, "threads": 1, "load_while_running": 4.0}) == 3.0
    assert load_of_others({"cpus": 4, "threads": 1, "load": 2.0}) == 2.0
