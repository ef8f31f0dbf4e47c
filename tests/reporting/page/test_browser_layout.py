"""The page in a real Chromium on screens of several widths and on paper: nothing overflows.

Screenshots are written to the folder of the environment variable NSCL_SCREENSHOTS, if it is set.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from nscl.reporting import gather, sections
from nscl.reporting.page.html import render
from nscl.results import MetricsLog
from tests.reporting.browsing import (
    LINE,
    MAP,
    drawn,
    find,
    find_all,
    lines,
    methods,
    screen,
    wait,
)
from tests.reporting.making import EPOCHS, epochs, make_run

pytestmark = pytest.mark.browser


def outside(page: Any, *, right: int = 8) -> list[str]:
    """Texts that reach beyond their chart."""
    found: list[str] = page.execute_script(
        "return [...document.querySelectorAll('.plot svg text')].filter((t) => {"
        " const a = t.getBoundingClientRect(), b = t.ownerSVGElement.getBoundingClientRect();"
        " return a.left < b.left - 2 || a.right > b.right + arguments[0]"
        " || a.bottom > b.bottom + 2 || a.top < b.top - 2; })"
        ".map((t) => t.textContent)",
        right,
    )
    return found


def opened(chromium: Any, runs: Path, *, width: int = 1280) -> Any:
    """The page of some runs, all of it on the screen."""
    file = runs.parent / "page.html"
    file.write_text(render(sections(gather([runs]).runs)))
    screen(chromium, width, 900)
    chromium.get(file.as_uri())
    drawn(chromium)
    height = chromium.execute_script("return document.documentElement.scrollHeight")
    screen(chromium, width, height)
    settled(chromium)
    return chromium


def settled(page: Any) -> None:
    """Wait until charts have the width of their boxes."""
    misfits = (
        "return [...document.querySelectorAll('[data-chart] .plot')].filter((box) => "
        "box.clientWidth + 1 < box.querySelector('svg.marks').getBoundingClientRect().width).length"
    )
    wait(lambda: page.execute_script(misfits) == 0)


@pytest.mark.parametrize("tasks", [1, 2])
def test_maps_of_few_tasks_have_room_for_their_titles(
    chromium: Any, tmp_path: Path, tasks: int
) -> None:
    make_run(tmp_path / "runs", "adam-nscl", tasks=tasks, layers={"a": 5, "b": 6}, tracked=2)
    page = opened(chromium, tmp_path / "runs")
    assert len(find_all(page, MAP)) == 3
    assert outside(page, right=0) == []
    assert page.get_log("browser") == []


@pytest.mark.parametrize(("width", "side_by_side"), [(390, False), (1280, True)])
def test_maps_of_layers_are_read_on_any_screen(
    chromium: Any, tmp_path: Path, width: int, side_by_side: bool
) -> None:
    for method in ("gpm", "adam-nscl"):
        make_run(tmp_path / "runs", method, tasks=10, layers={"blocks.2.shortcut": 5, "conv1": 6})
    page = opened(chromium, tmp_path / "runs", width=width)
    shrunk, tops = page.execute_script(
        "const svg = document.querySelector('[data-chart=share] svg');"
        "const maps = [...document.querySelectorAll(`[data-chart=share] ${arguments[0]}`)];"
        "return [svg.getBoundingClientRect().width / svg.getAttribute('width'),"
        " maps.map((map) => map.getBoundingClientRect().top)]",
        MAP,
    )
    assert shrunk > 0.99
    assert (len(set(tops)) == 1) == side_by_side
    assert outside(page) == []


def test_an_open_task_stays_inside_the_charts(chromium: Any, tmp_path: Path) -> None:
    for method, done in (("ewc", 1), ("lwf", 2)):
        run = make_run(tmp_path / "runs", method, finished=False, tasks=2, tracked=3)
        with MetricsLog(run.metrics_path) as log:
            for record in epochs(3, tracked=3)[2 * EPOCHS :][:done]:
                log.append(record)
    page = opened(chromium, tmp_path / "runs")
    ends = page.execute_script(
        "return ['times', 'losses'].map((key) => {"
        " const chart = document.querySelector(`[data-chart=${key}] svg`);"
        " const axis = chart.querySelector('.role-axis-domain line').getBoundingClientRect();"
        " return [...chart.querySelectorAll(arguments[0])]"
        "  .map((l) => l.getBoundingClientRect().right - axis.right); })",
        LINE,
    )
    assert all(end < 1 for chart in ends for end in chart)
    # The third task is a third and two thirds done: neither line has reached the end of it.
    assert all(end < -20 for end in ends[1])


@pytest.mark.parametrize("width", [390, 1280])
def test_long_names_leave_the_numbers_their_room(chromium: Any, tmp_path: Path, width: int) -> None:
    name = "displacement since the last task, " * 6 + "and a ridge"
    make_run(tmp_path / "runs", "adam-nscl", label=name, stores="data", layers={"a": 5}, a=1)
    make_run(tmp_path / "runs", "adam-nscl", layers={"a": 5}, a=2)
    page = opened(chromium, tmp_path / "runs", width=width)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    cell = find(page, '.results tr[data-keeps="data"] th')
    assert cell.size["width"] < 0.6 * width
    assert find(cell, ".long").get_attribute("title") == name
    assert find(page, ".results tbody th .mark").is_displayed()
    assert methods(page)[-1] == name
    assert all(each.size["width"] < 0.8 * width for each in find_all(page, MAP))
    assert outside(page) == []
    assert page.get_log("browser") == []


def test_names_are_distinct_on_a_phone(chromium: Any, tmp_path: Path) -> None:
    for a in (3, 10, 30):
        make_run(tmp_path / "runs", "adam-nscl", label=f"displacement, Ridge {a}", a=a)
    page = opened(chromium, tmp_path / "runs", width=360)
    cut = (
        "return [...document.querySelectorAll('.long')]"
        ".filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.textContent)"
    )
    assert page.execute_script(cut) == []
    # Two lines of whole words: a column as narrow as its letters may be would break them.
    assert all(name.size["height"] < 50 for name in find_all(page, ".results .long"))
    assert page.execute_script("return document.documentElement.scrollWidth") <= 360


def test_the_legend_stays_with_the_charts(chromium: Any, tmp_path: Path) -> None:
    for i in range(60):
        make_run(tmp_path / "runs", "adam-nscl", tasks=2, label=f"variant {i} of sixty", a=i)
    page = opened(chromium, tmp_path / "runs")
    screen(page, 1280, 800)
    assert find(page, ".legend").size["height"] <= 200
    places = (
        "document.querySelector(arguments[0]).scrollIntoView();"
        "return ['.legend', arguments[0]].map((s) => {"
        " const box = document.querySelector(s).getBoundingClientRect();"
        " return [box.top, box.bottom]; })"
    )
    legend, charts = page.execute_script(places, ".charts")
    assert legend[0] == 0  # beside its charts it stays on the screen
    assert charts[0] < legend[1]
    legend, runs = page.execute_script(places, ".runs")
    assert legend[1] <= runs[0]


def test_lines_of_a_sweep_are_distinct(chromium: Any, tmp_path: Path) -> None:
    for norms in ("ewc", "freeze"):
        for a in (10.0, 20.0, 30.0) if norms == "freeze" else (10.0, 20.0, 30.0, 40.0):
            make_run(tmp_path / "runs", "adam-nscl", a=a, norms=norms)
    page = opened(chromium, tmp_path / "runs")
    both = ["adam-nscl", "norms=freeze"]
    assert lines(page, "sweep-acc-0") == both
    assert find(page, '[data-chart="sweep-bwt-0"] .key').text.split("\n") == both


def test_paper_has_all_columns_the_legend_and_dark_letters(chromium: Any, tmp_path: Path) -> None:
    for seed in (0, 1):
        make_run(tmp_path, "adns", seed, benchmark="split-cifar100-10")
        make_run(tmp_path, "ewc", seed, benchmark="split-cifar100-10", label="one word or two " * 3)
    page = opened(chromium, tmp_path, width=740)  # of a letter, between usual margins
    page.execute_script("document.documentElement.dataset.theme = 'dark'")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    tables = find_all(page, ".results, .runs")
    assert all(table.rect["x"] + table.rect["width"] <= 740 for table in tables)
    assert find(page, ".legend").is_displayed()
    assert not find(page, ".filter").is_displayed()
    assert find(page, "h1").value_of_css_property("color") == "rgba(27, 31, 35, 1)"
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.parametrize(
    ("name", "width", "dark"),
    [
        ("light", 1280, False),
        ("dark", 1280, True),
        ("narrow", 390, False),
        ("narrow-dark", 390, True),
    ],
)
def test_screens(page: Any, tmp_path: Path, name: str, width: int, dark: bool) -> None:
    screen(page, width, 900, dark=dark)
    height = page.execute_script("return document.documentElement.scrollHeight")
    screen(page, width, height, dark=dark)
    settled(page)
    assert len(lines(page)) == 4
    # Nothing reaches beyond the screen, and no chart's text beyond its chart.
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    assert outside(page) == []
    folder = Path(os.environ.get("NSCL_SCREENSHOTS") or tmp_path)
    page.save_screenshot(str(folder / f"report-{name}.png"))
    with Image.open(folder / f"report-{name}.png") as image:
        assert image.width == width
        assert len(image.convert("RGB").getcolors(1 << 24) or []) > 50


def test_a_table_that_scrolls_shows_it_on_a_phone(chromium: Any, tmp_path: Path) -> None:
    for method in ("ewc", "gem"):
        make_run(tmp_path / "runs", method)
    page = opened(chromium, tmp_path / "runs", width=390)
    table = find(page, ".wide")
    assert page.execute_script("return arguments[0].scrollWidth > arguments[0].clientWidth", table)

    def edge() -> float:
        """How dark the right edge of the table is, between its rows of text."""
        table.screenshot(str(tmp_path / "table.png"))
        with Image.open(tmp_path / "table.png") as image:
            grey = np.asarray(image.convert("L"), dtype=float)
        return float(255 - np.median(grey[:, -3:]))

    shadow = edge()
    page.execute_script("arguments[0].scrollLeft = 9999", table)
    assert shadow > 20
    wait(lambda: edge() < 5)  # nothing more to scroll to: no shadow


def test_groups_keep_their_name_in_view_on_a_phone(chromium: Any, tmp_path: Path) -> None:
    for method, stores in (("ewc", "parameters"), ("gem", "data"), ("joint", "data")):
        make_run(tmp_path / "runs", method, stores=stores, benchmark="split-cifar100-10")
    page = opened(chromium, tmp_path / "runs", width=390)
    page.execute_script("document.querySelector('.wide').scrollLeft = 9999")
    for name in find_all(page, ".results .group span"):
        place = name.rect
        assert place["x"] >= 0
        assert place["x"] + place["width"] <= 390
