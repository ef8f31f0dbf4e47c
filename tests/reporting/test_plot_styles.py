"""Styles distinguish series, and bounds are neutral."""

from nscl.reporting import Section
from nscl.reporting.plot_styles import first_styles, section_styles


def test_styles_are_distinct_and_bounds_neutral(section: Section) -> None:
    found = section_styles(section)
    assert len(set(found)) == len(found)
    assert found[0].colour == 6  # fine-tuning is grey


def test_colour_and_marker_alone_tell_54_series_apart() -> None:
    assert len({(style.colour, style.marker) for style in first_styles(54)}) == 54
