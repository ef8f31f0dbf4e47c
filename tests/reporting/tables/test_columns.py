"""Columns: how a number is printed, and where published ones stand."""

from dataclasses import replace

import pytest

from nscl.reporting import Section
from nscl.reporting.tables.columns import COLUMNS, comparable

BY_KEY = {column.key: column for column in COLUMNS}


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("bwt", -0.004, "0.00"),  # no minus zero
        ("bwt", -3.456, "−3.46"),
        ("bwt", 1.0, "+1.00"),
        ("acc", 93.456, "93.46"),
        ("forgetting", -1.0, "−1.00"),
    ],
)
def test_a_number_as_it_is_printed(key: str, value: float, text: str) -> None:
    assert BY_KEY[key].text(value) == text


def test_headings_have_their_unit_and_say_what_is_not_from_these_runs() -> None:
    assert BY_KEY["acc"].title == "ACC (%)"
    assert BY_KEY["published_bwt"].title == "Published BWT, full scale (points)"


def test_published_numbers_are_of_whole_streams_only(section: Section) -> None:
    whole = replace(section, benchmark="split-cifar100-10", stream="")
    gem = next(series for series in section.series if series.method == "gem")
    found = BY_KEY["published_acc"].value(whole, gem)
    assert found is not None
    assert (found.mean, found.std) == (comparable(whole, gem).acc, None)  # type: ignore[union-attr]
    part = replace(whole, stream="first 3 tasks")
    assert comparable(part, gem) is None
    assert BY_KEY["published_acc"].value(part, gem) is None


def test_the_time_of_a_step_is_in_milliseconds(section: Section) -> None:
    found = BY_KEY["ms_per_step"].value(section, section.series[0])
    assert found is not None
    assert found.mean == pytest.approx(4.5)  # of 4 and 5 ms
