"""Integers of the command line, as far as cyclopts would take something else."""

import pytest

from nscl.cli.integer_option import parse_integer


class Typed:
    def __init__(self, value: str) -> None:
        self.value = value


def test_an_integer_is_read() -> None:
    assert parse_integer(int, [Typed("8")]) == 8  # type: ignore[list-item]


@pytest.mark.parametrize("text", ["2.5", "two", ""])
def test_anything_else_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(ValueError, match=f"must be a whole number, not '{text}'"):
        parse_integer(int, [Typed(text)])  # type: ignore[list-item]
