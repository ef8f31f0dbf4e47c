"""The charts of two runs side by side are valid, and wait for their data."""

import altair as alt

from nscl.reporting import Section
from nscl.reporting.page.charts.pair import NAMES, pair_charts


def test_the_charts_are_valid_and_have_places_for_two_names(section: Section) -> None:
    found = pair_charts(section)
    assert list(found) == ["acc", "loss", "matrix"]
    for spec in found.values():
        alt.Chart.from_dict(spec, validate=True)
    assert found["acc"]["datasets"]["rows"] == found["loss"]["datasets"]["rows"] == []
    text = str(found["matrix"])
    assert all(f"'{name}'" in text for name in NAMES)
