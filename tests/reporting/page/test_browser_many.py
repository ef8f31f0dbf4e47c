"""The charts of the page in a real Chromium: few curves of many, names, numbers in cells, pairs."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nscl.metrics import AccuracyMatrix
from nscl.reporting import gather, sections
from nscl.reporting.figures.charts.matrices import accuracy_matrix, layer_map
from nscl.reporting.figures.sheets import SheetFigure
from nscl.reporting.figures.style import styled
from nscl.reporting.page.html import render
from nscl.results.records import spectra as spectra_file
from tests.reporting.browsing import (
    LINE,
    MAP,
    NUMBER,
    POINT,
    drawn,
    find,
    find_all,
    lines,
    screen,
    wait,
)
from tests.reporting.making import make_run
from tests.reporting.page.test_browser import reloaded

pytestmark = pytest.mark.browser
# By the length of its name a method forgets more or less: 13 letters as little as any.
METHODS = ("owm", "ewc", "lwf", "gem", "mega", "a-gem", "adns", "finetune", "frozen", "instaparam")


@pytest.fixture
def many(chromium: Any, tmp_path: Path) -> Iterator[Any]:
    """Ten methods, three of which keep old data."""
    for method in METHODS:
        stores = "data" if "g" in method else "nothing"
        make_run(tmp_path / "runs", method, stores=stores, tasks=10, alpha=len(method))
    make_run(tmp_path / "runs", "finetune", seed=1, tasks=10, alpha=8)
    yield shown(chromium, tmp_path)
    assert chromium.get_log("browser") == []


def shown(chromium: Any, folder: Path) -> Any:
    """The page of the runs in a folder, as at the first visit."""
    file = folder / "page.html"
    file.write_text(render(sections(gather([folder / "runs"]).runs)))
    screen(chromium, 1280, 900)
    chromium.get(file.as_uri())
    chromium.execute_script("sessionStorage.clear()")
    chromium.get(file.as_uri())
    return drawn(chromium)


def test_curves_begin_with_the_best_and_the_worst(many: Any) -> None:
    """Without old data and with it; all other charts show every method."""
    first = lines(many)
    assert "finetune" in first
    assert 3 <= len(first) <= 4
    assert len(find_all(many, f'[data-chart="matrix"] {MAP}')) == len(METHODS)
    assert len(find_all(many, f'[data-chart="plane"] {POINT}')) == len(METHODS)
    others = [method for method in METHODS if method not in first]
    find(many, f'.legend [data-series="{others[0]}"]').click()
    wait(lambda: sorted(lines(many)) == sorted([*first, others[0]]))
    assert len(find_all(many, f'[data-chart="matrix"] {MAP}')) == len(METHODS)
    find(many, '.legend [data-series="finetune"]').click()
    wait(lambda: "finetune" not in lines(many))
    wait(lambda: len(find_all(many, f'[data-chart="matrix"] {MAP}')) == len(METHODS) - 1)
    chosen = sorted(lines(many))
    assert any(reloaded(many) and sorted(lines(drawn(many))) == chosen for _ in range(5))
    find(many, ".legend .first").click()
    wait(lambda: sorted(lines(many)) == sorted(first))
    wait(lambda: len(find_all(many, f'[data-chart="matrix"] {MAP}')) == len(METHODS))


@pytest.mark.parametrize("width", [390, 1280])
def test_names_in_the_plane_overlap_neither_each_other_nor_a_marker(many: Any, width: int) -> None:
    screen(many, width, 900)
    wait(lambda: find(many, '[data-chart="plane"] svg').size["width"] <= width)
    names, markers = many.execute_script(
        "const chart = document.querySelector('[data-chart=plane]');"
        "const boxes = (selector) => [...chart.querySelectorAll(selector)]"
        "  .filter((e) => e.getAttribute('opacity') !== '0')"
        "  .map((e) => { const b = e.getBoundingClientRect();"
        "    return [e.textContent, b.left, b.top, b.right, b.bottom]; });"
        "return [boxes('.names_marks text'), boxes(arguments[0])];",
        POINT,
    )
    assert {name for name, *_ in names} <= set(METHODS)
    assert len(names) >= 6

    def meet(a: list[float], b: list[float], spare: float = 2.0) -> bool:
        """Boxes of letters are taller than the letters: two pixels are no collision."""
        across = a[1] < b[3] - spare and b[1] < a[3] - spare
        return bool(across and a[2] < b[4] - spare and b[2] < a[4] - spare)

    assert not [(a[0], b[0]) for i, a in enumerate(names) for b in names[:i] if meet(a, b)]
    assert not [a[0] for a in names for b in markers if meet(a, b)]


def test_numbers_stand_in_the_cells_of_ten_tasks(many: Any) -> None:
    fits = many.execute_script(
        "return [...document.querySelectorAll(`[data-chart=matrix] ${arguments[0]}`)]"
        ".filter((t) => t.getAttribute('opacity') !== '0').map((t) => {"
        " const cell = t.closest('.cell').querySelector('.mark-rect path').getBoundingClientRect();"
        " return t.getBoundingClientRect().width < cell.width; })",
        NUMBER,
    )
    assert fits == [True] * len(METHODS) * 55


def test_cells_are_rounded_as_in_the_figures(chromium: Any, tmp_path: Path) -> None:
    """Halves, all but halves, next to nothing; an eighth of the directions and nearly one."""
    made = make_run(tmp_path / "runs", "adam-nscl", tasks=4, layers={"a": 8, "b": 10_000})
    rows = [[62.5], [63.5, 62.4996], [0.4, 0.0, 100.0], [1.0, 61.5, 0.5, 99.4951]]
    rounded = replace(made.result(), accuracy=AccuracyMatrix(rows))
    made.result_path.unlink()
    made.write_result(rounded)
    freed = spectra_file.read(made.spectra_path)
    for layers in freed.values():
        layers["a"]["weights"][:] = np.arange(8) < 1
        layers["b"]["weights"][:] = np.arange(10_000) < 1246
    spectra_file.write(made.spectra_path, freed)
    (section,) = sections(gather([tmp_path / "runs"]).runs)
    page = shown(chromium, tmp_path)
    with styled():
        figures = {"matrix": accuracy_matrix(section), "free": layer_map(section.series[0], "free")}
    for key, figure in figures.items():
        cells = [t.text for t in find_all(page, f'[data-chart="{key}"] {NUMBER}')]
        assert isinstance(figure, SheetFigure)
        assert cells == [text for text, _ in figure.stamps][: len(cells)]
    assert cells == ["0.13"] * 4 + ["0.12"] * 4


def choose_pair(page: Any, *labels: str) -> None:
    from selenium.webdriver.support.select import Select

    for menu, label in zip(find_all(page, ".pair select"), labels, strict=True):
        Select(menu).select_by_visible_text(label)


def test_two_runs_stand_side_by_side(many: Any) -> None:
    result = find(many, ".compared")
    assert not result.is_displayed()
    choose_pair(many, "finetune, seed 0", "owm, seed 0")
    wait(lambda: len(find_all(many, "[data-pair] svg.marks")) == 3)
    settings = {
        row.text.split(" ")[0]: row.text.split(" ")[1:]
        for row in find_all(many, ".settings tbody tr")
    }
    assert settings["method"] == ["finetune", "owm"]
    assert settings["options.alpha"] == ["8", "3"]
    assert "seed" not in settings  # the same
    both = ["finetune, seed 0", "owm, seed 0"]
    for key in ("acc", "loss"):
        found = find_all(many, f'[data-pair="{key}"] {LINE}')
        assert [line.get_attribute("aria-label") for line in found] == both
    assert len(find_all(many, f'[data-pair="matrix"] {MAP}')) == 2
    choose_pair(many, "finetune, seed 0", "finetune, seed 1")
    wait(lambda: find_all(many, ".settings tbody tr")[0].text == "seed 0 1")
    assert any(
        reloaded(many) and find(drawn(many), ".settings tbody tr").text == "seed 0 1"
        for _ in range(5)
    )


def test_every_heading_explains_itself(many: Any) -> None:
    headings = [*find_all(many, ".results thead button"), *find_all(many, ".runs thead th")]
    headings = [heading for heading in headings if heading.is_displayed()]
    assert len(headings) > 12
    assert all(len(heading.get_attribute("title") or "") > 10 for heading in headings)
    explained = [term.get_attribute("textContent") for term in find_all(many, ".columns dt")]
    names = [heading.text.split("\n")[0].removesuffix(" ≈") for heading in headings]
    assert set(names) <= set(explained)
