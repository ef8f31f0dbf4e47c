"""All cards of a section: valid Vega-Lite, in the order of the page, none without data."""

import subprocess
import sys
from pathlib import Path

import altair as alt

from nscl.reporting import Section, gather, sections
from nscl.reporting.page.charts.cards import cards, legend
from nscl.reporting.page.html import render
from nscl.reporting.plot_styles import COLOURS
from tests.reporting.making import make_run

KEYS = [
    "acc", "plane", "task", "training", "times", "sweep-acc-0", "sweep-bwt-0", "losses",
    "matrix", "share", "free", "spectrum",
]  # fmt: skip


def test_every_chart_is_valid_vega_lite(section: Section) -> None:
    found = cards(section)
    assert [card.key for card in found] == KEYS
    for card in found:
        alt.Chart.from_dict(card.spec, validate=True)


def test_the_cards_without_data_are_left_out(tmp_path: Path) -> None:
    make_run(tmp_path, tasks=1)
    (alone,) = sections(gather([tmp_path]).runs)
    assert [card.key for card in cards(alone)] == ["plane", "training", "times", "matrix"]


def test_the_pages_colours_are_those_of_the_paper(section: Section) -> None:
    page = render([section])
    assert all(f"--c{i}: {colour};" in page for i, colour in enumerate(COLOURS))
    assert [each["colour"] for each in legend(section)] == [f"var(--c{i})" for i in (6, 0, 1, 2)]


def test_numbers_stand_in_cells_only_where_they_fit(tmp_path: Path) -> None:
    for tasks, numbers in ((8, True), (12, True), (13, False)):
        make_run(tmp_path / str(tasks), "gem", tasks=tasks)
        (found,) = sections(gather([tmp_path / str(tasks)]).runs)
        (matrix,) = [card for card in cards(found) if card.key == "matrix"]
        assert ("text" in matrix.spec["datasets"]["rows"][0]) == numbers


def test_reports_start_without_altair_and_never_need_torch() -> None:
    code = (
        "import sys, nscl.reporting; assert 'altair' not in sys.modules;"
        "import nscl.reporting.page.charts.cards; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
