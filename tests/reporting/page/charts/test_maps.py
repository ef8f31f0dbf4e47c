"""Heat maps: numbers where they fit, titles that stay distinct, one scale for all maps."""

from pathlib import Path

import pytest

from nscl.reporting import Section, gather, sections
from nscl.reporting.page.charts.maps import matrix_card
from nscl.reporting.plot_data.cells import clipped
from nscl.reporting.plot_data.curves import mean_matrix
from tests.reporting.making import make_run


def test_a_map_has_the_mean_matrix_and_all_maps_share_a_scale(section: Section) -> None:
    (card,) = matrix_card(section)
    rows = card.spec["datasets"]["rows"]
    assert [row["series"] for row in rows] == [series.marked for series in section.shown]
    truth = [value for row in mean_matrix(section.series[0]) for value in row]
    assert rows[0]["value"] == pytest.approx(truth, rel=1e-6)
    places = list(zip(rows[0]["row"], rows[0]["column"], strict=True))
    assert places == [(str(i + 1), str(j + 1)) for i in range(4) for j in range(i + 1)]
    values = [value for row in rows for value in row["value"]]
    (scale,) = [
        layer["encoding"]["color"]["scale"]
        for layer in card.spec["spec"]["layer"]
        if layer["mark"]["type"] == "rect"
    ]
    span = clipped(values)
    assert scale["domain"] == [span.low, span.high]


def test_long_titles_are_cut_but_stay_distinct(tmp_path: Path) -> None:
    label = "one word after another " * 9
    for number, end in enumerate("ab"):
        make_run(tmp_path, "gem", tasks=2, label=label + end, number=number)
    make_run(tmp_path, "ewc", tasks=2, label="other words " * 20)
    (found,) = sections(gather([tmp_path]).runs)
    (card,) = matrix_card(found)
    titles = {row["series"]: row["title"] for row in card.spec["datasets"]["rows"]}
    assert len(set(titles.values())) == 3
    cut = titles.pop(next(name for name in titles if name.startswith("other")))
    assert cut.count("\n") == 2
    assert cut.endswith("…")
    assert all(" ".join(title.split()) == name for name, title in titles.items())
