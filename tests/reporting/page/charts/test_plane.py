"""The plane of ACC and BWT: a point per finished series, with bars of one deviation."""

from pathlib import Path

import pytest

from nscl.reporting import Section, gather, sections
from nscl.reporting.page.charts.plane import plane_card
from tests.reporting.making import make_run


def test_a_point_is_the_mean_with_its_bars_and_its_words(section: Section) -> None:
    (card,) = plane_card(section)
    row, series = card.spec["datasets"]["rows"][0], section.series[0]
    for name in ("acc", "bwt"):
        found = series.figure(name)
        assert found is not None
        mean, std = round(found.mean, 2), round(found.std or 0.0, 2)
        assert row[name] == mean
        assert (row[f"{name}_low"], row[f"{name}_high"]) == pytest.approx((mean - std, mean + std))
    assert row["bwt_text"].startswith("−")
    assert " ± " in row["bwt_text"]


def test_unfinished_series_have_no_point_and_one_seed_no_bar(tmp_path: Path) -> None:
    make_run(tmp_path, "ewc", tasks=2)
    make_run(tmp_path, "gem", finished=False, tasks=2)
    (found,) = sections(gather([tmp_path]).runs)
    (card,) = plane_card(found)
    (row,) = card.spec["datasets"]["rows"]
    assert row["series"] == "ewc"
    assert row["acc_low"] == row["acc"] == row["acc_high"]
    assert "±" not in row["acc_text"]
