"""Short texts about runs: names that fit and stay distinct."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nscl.engines.display.text import format_seconds, shorten, shorten_distinct


@given(
    st.lists(st.text("ab …", min_size=1, max_size=30), min_size=1, max_size=6, unique=True),
    st.integers(5, 40),
)
def test_shortened_names_fit_and_stay_distinct(names: list[str], width: int) -> None:
    shown = shorten_distinct(names, width)
    assert all(len(text) <= width for text in shown)
    assert all(a != b for a, b in combinations(shown, 2))


@pytest.mark.parametrize("end", [0, 3, None])
def test_a_name_loses_its_middle_only(end: int | None) -> None:
    name = "package.methods:Mine seed 3"
    begin, kept = shorten(name, 12, end=end).split("…")
    assert name.startswith(begin)
    assert name.endswith(kept)
    assert len(begin) + len(kept) == 11
    assert end is None or len(kept) == end


@pytest.mark.parametrize(
    ("seconds", "text"), [(99.4, "99 s"), (100, "2 min"), (5999, "100 min"), (6000, "1.7 h")]
)
def test_the_unit_changes_where_people_would(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
