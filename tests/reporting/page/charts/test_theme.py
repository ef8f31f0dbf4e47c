"""What all charts share: styles by series, data and parameters in the specification, rounding."""

import pytest

from nscl.metrics import Summary
from nscl.reporting import Section
from nscl.reporting.page.charts.theme import (
    SHAPES,
    chart_of_rows,
    choice,
    dash_pixels,
    hidden_series,
    means,
    significant,
    specification,
    styles_of,
)
from nscl.reporting.plot_styles import MARKERS, section_styles


def test_series_have_the_styles_of_the_paper_and_open_markers_where_data_are_kept(
    section: Section,
) -> None:
    found = styles_of(section)
    assert found.labels == [series.marked for series in section.shown]
    assert found.open == [False, True, False, False]  # gem
    styles = section_styles(section)
    fills = found.fill.to_dict()["scale"]["range"]
    assert fills[1] == "var(--ground)"
    assert fills[0] == f"var(--c{styles[0].colour})"
    assert found.shape.to_dict()["scale"]["range"] == [SHAPES[style.marker] for style in styles]
    assert all(dashes for dashes in found.dash.to_dict()["scale"]["range"])
    assert dash_pixels(styles[0]) == [9.0, 2.9]  # of a line 1.8 pixels wide
    assert len(SHAPES) == MARKERS + 2  # and one for each bound


def test_a_specification_has_its_data_and_all_parameters() -> None:
    chart = chart_of_rows().mark_point()
    spec = specification(
        chart.facet("series:N"), [{"series": "a"}], [hidden_series(), choice("xy")]
    )
    assert spec["datasets"]["rows"] == [{"series": "a"}]
    assert [param["name"] for param in spec["params"]] == ["hidden", "choice"]
    assert "$schema" not in spec
    assert "config" not in spec


@pytest.mark.parametrize(
    ("value", "rounded"), [(None, None), (0.0, 0.0), (1234.5, 1230.0), (-0.00012345, -0.000123)]
)
def test_significant_digits(value: float | None, rounded: float | None) -> None:
    assert significant(value) == rounded


def test_one_seed_has_no_deviation() -> None:
    found = means([Summary(1.234, 0.567), Summary(2.0, None)])
    assert found == {"mean": [1.23, 2.0], "std": [0.57, None]}
