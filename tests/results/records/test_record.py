"""Records: checked when made and when read, frozen, with errors of one line that name the field."""

import dataclasses
from typing import Any

import pytest

from nscl.results import FormatError
from nscl.results.records.record import Count, Name, Number, Seconds, checked, record


@record
class Sample:
    name: Name
    count: Count
    value: Number = 0.0
    seconds: Seconds = 0.0


GOOD = {"name": "a", "count": 1}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": ""}, ": name must not be empty, got ''"),
        ({"name": 3}, ": name must be text, got 3"),
        ({"count": -1}, ": count must be greater than or equal to 0, got -1"),
        ({"count": True}, ": count must be a whole number, got True"),
        ({"value": float("inf")}, ": value must be a finite number, got inf"),
        ({"seconds": "1"}, ": seconds must be a number, got '1'"),
        ({"colour": 1, "age": 2}, " has fields that nscl does not know: age, colour"),
    ],
)
def test_a_wrong_field_is_named_when_made_and_when_read(
    changes: dict[str, Any], reason: str
) -> None:
    for make, place in (
        (lambda: Sample(**GOOD | changes), "Sample"),
        (lambda: checked(Sample, GOOD | changes, place="file"), "file"),
    ):
        with pytest.raises(FormatError) as caught:
            make()
        assert str(caught.value) == place + reason


def test_all_missing_fields_are_named_with_the_way_out() -> None:
    with pytest.raises(FormatError) as caught:
        checked(Sample, {"colour": 1}, place="file", way_out="make it again")
    assert str(caught.value) == "file is incomplete: it lacks count, name; make it again"


def test_a_record_cannot_be_changed() -> None:
    sample = Sample(**GOOD)
    with pytest.raises(dataclasses.FrozenInstanceError):
        sample.count = 2  # type: ignore[misc]
    assert sample == checked(Sample, GOOD, place="file")
