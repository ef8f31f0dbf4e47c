"""Heat maps: numbers where they fit, titles that stay distinct, one scale for all maps."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from nscl.reporting import Section, gather, sections
from nscl.reporting.page.charts.cards import cards
from nscl.reporting.page.charts.maps import layer_cards, matrix_card
from nscl.reporting.plot_data.curves import mean_matrix
from nscl.reporting.plot_data.spectral import spectra, spectral_table
from tests.reporting.making import make_run


def test_numbers_stand_in_cells_only_where_they_fit(tmp_path: Path) -> None:
    for tasks, numbers in ((8, True), (9, False)):
        make_run(tmp_path / str(tasks), "gem", tasks=tasks)
        (found,) = sections(gather([tmp_path / str(tasks)]).runs)
        (matrix,) = [card for card in cards(found) if card.key == "matrix"]
        assert ("text" in matrix.spec["datasets"]["rows"][0]) == numbers


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
    assert scale["domain"] == [math.floor(min(values)), math.ceil(max(values))]


def test_layers_have_a_map_of_r_and_one_of_free_directions(section: Section) -> None:
    share, free = layer_cards(section)
    (of_share,), (of_free,) = (card.spec["datasets"]["rows"] for card in (share, free))
    assert of_share["series"] == of_free["series"] == "adam-nscl (a=10)"
    _, tasks = spectra(section.series[2])
    assert of_free["value"] == pytest.approx(
        [value for row in spectral_table(tasks, "free") for value in row], rel=1e-6
    )
    assert share.spec["spec"]["layer"][0]["encoding"]["color"]["scale"]["type"] == "log"
    without = replace(section, series=section.series[:2])
    assert list(layer_cards(without)) == []


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
