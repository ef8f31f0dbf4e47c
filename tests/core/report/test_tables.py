"""Tables of text: columns as wide as their widest cell, and numbers of few digits."""

import pytest

from nscl.core.report.tables import number, percent, table


def test_text_stands_to_the_left_and_numbers_to_the_right() -> None:
    lines = table(
        ("layer", "kind", "free"), [("a", "Conv2d", "7"), ("body.0", "x", "1234")], text=2
    )
    assert lines == [
        "layer   kind    free",
        "──────  ──────  ────",
        "a       Conv2d     7",
        "body.0  x       1234",
    ]


def test_no_line_ends_with_spaces() -> None:
    assert table(("a", "note"), [("b", "")], text=2)[2] == "b"


@pytest.mark.parametrize(
    ("value", "shown"), [(None, ""), (0.0, "0"), (1234.5, "1.23e+03"), (0.12345, "0.123")]
)
def test_numbers_have_three_digits(value: float | None, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0.0, "0.0 %"), (0.5, "50.0 %"), (0.001, "0.1 %"), (0.0009, "0.09 %"), (3e-7, "3e-05 %")],
)
def test_a_small_share_is_not_shown_as_none(share: float, shown: str) -> None:
    assert percent(share) == shown
