"""Line charts: few markers on each line, bands inside their limits, lines by a reader's choice."""

import altair as alt
import pytest

from nscl.reporting import Section
from nscl.reporting.page.charts.lines import MOST_MARKERS, line, line_chart
from nscl.reporting.page.charts.theme import styles_of


@pytest.mark.parametrize("points", [1, 5, 12, 13, 300])
def test_a_line_has_few_markers_the_first_at_its_beginning(points: int) -> None:
    row = line("gem", range(points), {"mean": [1.0] * points, "std": [None] * points})
    assert row["marked"][0] == 0
    assert set(row["marked"]) <= set(row["x"])
    assert min(points, MOST_MARKERS // 2) <= len(row["marked"]) <= MOST_MARKERS


def test_a_chart_filters_lines_limits_bands_and_says_when_all_are_off(section: Section) -> None:
    rows = [line("gem", [1, 2], {"mean": [99.0, 50.0], "std": [3.0, 1.0]})]
    spec = line_chart(
        rows,
        styles_of(section),
        x=alt.X("x:Q"),
        y=alt.Y("mean:Q"),
        text="''",
        heading="''",
        within=(0, 100),
        only="datum.task == choice",
    )
    alt.Chart.from_dict(spec, validate=True)
    assert spec["datasets"]["rows"] == rows
    bands, *_, nothing = spec["layer"]
    found = {t["as"]: t["calculate"] for t in bands["transform"] if "calculate" in t}
    assert found["low"] == "max(0, datum.mean - datum.std)"
    assert found["high"] == "min(100, datum.mean + datum.std)"
    filters = [t["filter"] for t in bands["transform"] if "filter" in t]
    assert filters[0] == "indexof(hidden, datum.series) < 0 && (datum.task == choice)"
    assert nothing["transform"] == [{"filter": f"length(hidden) >= {len(section.shown)}"}]
