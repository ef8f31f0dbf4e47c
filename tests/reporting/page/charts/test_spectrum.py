"""The chart of singular values: a menu of curves, each thinned with both of its ends."""

from pathlib import Path

import pytest

from nscl.reporting import Section, gather, sections
from nscl.reporting.page.charts.spectrum import MOST_LAYERS, MOST_POINTS, MOST_TASKS, spectrum_card
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
