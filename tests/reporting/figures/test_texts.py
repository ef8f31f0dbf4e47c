"""Texts fit into their place."""

import pytest

from nscl.reporting.figures.texts import fitted, width


@pytest.mark.parametrize("room", [0.4, 1.0, 3.0])
def test_texts_are_as_wide_as_their_room_at_most(room: float) -> None:
    text = "adam-nscl (acts_on=displacement, alpha=300, note=$x_1$, " + "W" * 60 + ")"
    lines = fitted(text, room).replace(r"\$", "$").split("\n")
    assert len(lines) == 3
    assert all(width(line, 8.0) <= room for line in lines)
    assert lines[-1].endswith("…")
