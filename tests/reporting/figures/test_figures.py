"""All figures of a section: what is drawn, and that it is readable."""

from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from nscl.reporting import Section, gather, sections
from nscl.reporting.figures import not_drawn, plans
from nscl.reporting.figures.charts.curves import acc_after_task, step_time, task_accuracy
from nscl.reporting.figures.charts.matrices import accuracy_matrix, layer_map
from nscl.reporting.figures.charts.spectrum import singular_values
from nscl.reporting.figures.drawing import draw
from nscl.reporting.figures.style import laid_out, styled
from tests.reporting.making import make_run


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


def test_spectra_are_drawn_of_every_method_first(ablated: Section) -> None:
    names = [plan.name for plan in plans(ablated, set())]
    spectral = [name for name in names if name.startswith("singular-values")]
    assert len(spectral) == 6
    assert spectral[-1] == "singular-values-6-connector"


def test_spectra_that_are_not_drawn_are_reported(tmp_path: Path) -> None:
    for i in range(8):
        make_run(tmp_path, f"method-{i}", tasks=1, layers={"one": 4})
    (section,) = sections(gather([tmp_path]).runs)
    (found,) = not_drawn(section, set())
    assert found.name == "singular-values of 2 more series"
    assert [series.name for series in not_drawn(section, {"spectra of method-0"})] == [
        "singular-values of 1 more series"
    ]
