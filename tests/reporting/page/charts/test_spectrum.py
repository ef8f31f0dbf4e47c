"""Cards of spectra: maps of layers, and a menu of curves, thinned with both of their ends."""

from dataclasses import replace
from pathlib import Path

import pytest

from nscl.reporting import Section, gather, sections
from nscl.reporting.page.charts.spectrum import (
    MOST_LAYERS,
    MOST_POINTS,
    MOST_TASKS,
    layer_cards,
    spectrum_card,
)
from nscl.reporting.plot_data.spectral import spectra, spectral_table
from tests.reporting.making import make_run


def test_a_curve_is_the_spectrum_of_its_layer_from_the_largest_value(section: Section) -> None:
    (card,) = spectrum_card(section)
    rows = {row["curve"]: row for row in card.spec["datasets"]["rows"]}
    row = rows["adam-nscl (a=10): layers.1, after task 1"]
    raw = section.series[2].runs[0].spectra()[0]["backbone.layers.1"]
    values, weights = raw["eigenvalues"][0][::-1], raw["weights"][0][::-1]
    assert row["value"] == pytest.approx(values.tolist(), rel=5e-3)
    assert row["weight"] == weights.tolist()
    assert row["x"] == list(range(1, 13))
    assert row["note"].endswith("6 of 12 free")
    (menu,) = [param for param in card.spec["params"] if param["name"] == "choice"]
    assert menu["bind"]["options"] == list(rows)


def test_much_is_thinned_and_keeps_its_ends(tmp_path: Path) -> None:
    layers = {f"layer{i:02}": 500 for i in range(20)}
    make_run(tmp_path, "adam-nscl", tasks=7, layers=layers)
    (found,) = sections(gather([tmp_path]).runs)
    (card,) = spectrum_card(found)
    rows = card.spec["datasets"]["rows"]
    assert len(rows) == MOST_LAYERS * MOST_TASKS
    assert {len(row["x"]) for row in rows} == {MOST_POINTS}
    assert (rows[0]["x"][0], rows[0]["x"][-1]) == (1, 500)
    assert "layer00, after task 1" in rows[0]["curve"]
    assert "layer19, after task 7" in rows[-1]["curve"]


def test_without_spectra_there_is_no_card(tmp_path: Path) -> None:
    make_run(tmp_path, tasks=1)
    assert list(spectrum_card(sections(gather([tmp_path]).runs)[0])) == []


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
