"""All figures of a section as they are drawn: readable, no taller than a page, marked, saved."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from nscl.reporting import Section
from nscl.reporting.figures import plans
from nscl.reporting.figures.charts.curves import acc_after_task, step_time, task_accuracy
from nscl.reporting.figures.charts.matrices import accuracy_matrix, layer_map
from nscl.reporting.figures.charts.spectrum import singular_values
from nscl.reporting.figures.drawing import draw, render
from nscl.reporting.figures.plans import Plan
from nscl.reporting.figures.style import laid_out, styled
from nscl.reporting.plot_data.missing import LeftOut


@pytest.mark.parametrize(
    "function",
    [
        acc_after_task,
        task_accuracy,
        lambda section: layer_map(section.series[0], "free"),
        lambda section: singular_values(section.series[0]),
    ],
)
def test_all_texts_are_inside_and_readable(
    crowded: Section, function: Callable[[Section], Figure], tmp_path: Path
) -> None:
    with styled():
        figure = laid_out(function(crowded))
        bounds = figure.get_tightbbox()
        texts = [t for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible()]
        figure.savefig(tmp_path / "figure.png")
    width, height = figure.get_size_inches()
    assert bounds.x0 > -0.01
    assert bounds.y0 > -0.01
    assert bounds.x1 < width + 0.01
    assert bounds.y1 < height + 0.01
    assert min(t.get_fontsize() for t in texts) >= 7
    assert width <= 7.05  # fits on a page


def test_no_figure_is_taller_than_a_page(ablated: Section, crowded: Section) -> None:
    with styled():
        for section in (ablated, crowded):
            for plan in plans(section, {"sweep", "old-losses"}):
                assert draw(plan).get_figheight() <= 9.5, plan.name


def test_unfinished_runs_are_marked(ablated: Section) -> None:
    with styled():
        figures = [make(ablated) for make in (acc_after_task, task_accuracy, step_time)]
        (title,) = [
            text.get_text()
            for page in range(2)
            for text in accuracy_matrix(ablated, page).findobj(Text)
            if isinstance(text, Text) and "unfinished" in text.get_text()
        ]
    for figure in figures:
        texts = [text.get_text().replace("\n", " ") for text in figure.legends[0].get_texts()]
        assert [text for text in texts if "unfinished" in text] == [
            "adam-nscl (switch=24) (unfinished)"
        ]
    assert title.replace("\n", " ") == "adam-nscl (switch=24) (unfinished)"


def test_a_figure_is_saved_in_the_formats_asked_for_or_left_out_with_a_reason(
    section: Section,
) -> None:
    (plan,) = (plan for plan in plans(section, set()) if plan.name == "acc-bwt")
    files = render(plan, ["svg", "png"])
    assert isinstance(files, dict)
    assert files["svg"].startswith(b"<?xml")
    assert files["png"].startswith(b"\x89PNG")
    assert b"<dc:date>" not in files["svg"]
    empty = Plan("acc-bwt", "acc_bwt", (replace(section, series=()),))
    assert render(empty, ["svg"]) == LeftOut("acc-bwt", "no run is finished")
