"""The page in a real Chromium: it loads cleanly, sorts, filters, switches, tells values.

Screenshots are written to the folder of the environment variable NSCL_SCREENSHOTS, if it is set.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from nscl.metrics import AccuracyMatrix
from nscl.reporting import Written, gather, sections
from nscl.reporting.figures.matrices import accuracy_matrix, layer_map
from nscl.reporting.page import render
from nscl.results import MetricsLog
from nscl.results import spectra as spectra_file
from tests.reporting.browsing import find, find_all, hover, lines, methods, screen, wait
from tests.reporting.making import EPOCHS, epochs, make_run

pytestmark = pytest.mark.browser


@pytest.fixture
def page(chromium: Any, written: Written) -> Iterator[Any]:
    """The report, freshly opened on a wide light screen; a message in the console is a failure."""
    screen(chromium, 1280, 900)
    chromium.get(written.page.as_uri())
    chromium.execute_script("sessionStorage.clear()")
    chromium.get(written.page.as_uri())
    yield chromium
    assert chromium.get_log("browser") == []


def test_a_click_on_a_heading_sorts(page: Any) -> None:
    assert methods(page) == ["finetune", "gem", "adam-nscl (a=10)", "adam-nscl (a=1000)"]
    heading = next(b for b in find_all(page, ".results thead button") if "ACC" in b.text)

    def shown() -> list[float]:
        cells = find_all(page, ".results tbody tr > td:nth-child(3)")
        return [float(cell.get_attribute("data-value")) for cell in cells]

    heading.click()
    assert shown() == sorted(shown(), reverse=True)
    assert find(page, "th[aria-sort]").get_attribute("aria-sort") == "descending"
    heading.click()
    assert shown() == sorted(shown())
    find(page, ".results thead th button").click()
    assert methods(page) == ["adam-nscl (a=10)", "adam-nscl (a=1000)", "finetune", "gem"]


def test_words_and_clicks_filter(page: Any) -> None:
    find(page, ".filter").send_keys("NSCL 1000")
    assert methods(page) == ["adam-nscl (a=1000)"]
    assert find(page, ".count").text == "1 of 4 shown"
    find(page, ".filter").clear()
    find(page, ".filter").send_keys(" ")
    find(page, '[data-keep="data"]').click()
    assert methods(page) == ["gem"]
    find(page, '[data-keep="no-data"]').click()
    assert methods(page) == ["finetune", "adam-nscl (a=10)", "adam-nscl (a=1000)"]
    find(page, '[data-keep="all"]').click()
    assert len(methods(page)) == 4


def test_methods_are_switched_on_and_off_in_all_charts(page: Any) -> None:
    everything = ["finetune", "gem", "adam-nscl (a=10)", "adam-nscl (a=1000)"]
    charts = ("acc", "task", "times", "losses")
    assert all(lines(page, chart) == everything for chart in charts)
    assert len(find_all(page, '[data-chart="matrix"] .map')) == 4
    find(page, '.legend [data-series="gem"]').click()
    assert all("gem" not in lines(page, chart) and len(lines(page, chart)) == 3 for chart in charts)
    assert len(find_all(page, '[data-chart="matrix"] .map')) == 3
    assert len(find_all(page, '[data-chart="plane"] .dot')) == 3
    find_all(page, ".legend button")[-1].click()
    assert lines(page) == everything
    find_all(page, ".legend button")[-1].click()
    assert lines(page) == []
    assert "all methods are switched off" in find(page, '[data-chart="acc"]').text


def test_hovering_tells_values(page: Any, written: Written) -> None:
    cell = find_all(page, '[data-chart="matrix"] rect')[1]
    told = hover(page, cell)
    value = float(cell.get_attribute("data-value"))
    assert told == f"finetune\ntask 1 after task 2: {value:.2f} %"
    assert "after task" in hover(page, find(page, '[data-chart="acc"] svg'))
    assert all(label in find(page, "#tip").text for label in ("finetune", "gem", " %"))
    assert "BWT (points)" in hover(page, find(page, '[data-chart="plane"] .dot circle'))
    assert "direction" in hover(page, find(page, '[data-chart="spectrum"] svg'))
    assert "layers.0" in hover(page, find(page, '[data-chart="free"] rect'))
    for cell in find_all(page, '[data-chart="share"] rect')[:2]:
        told = hover(page, cell).rsplit(" ", 1)[1].replace("−", "-")
        assert float(told) == float(f"{float(cell.get_attribute('data-value')):.3g}")


def test_a_choice_of_task_draws_another_curve(page: Any) -> None:
    from selenium.webdriver.support.select import Select

    def drawn() -> list[str]:
        return [p.get_attribute("d") for p in find_all(page, '[data-chart="task"] path.line')]

    before = drawn()
    Select(find(page, '[data-chart="task"] select')).select_by_visible_text("task 2")
    assert len(drawn()) == len(before)
    assert all(a != b for a, b in zip(drawn(), before, strict=True))


def test_the_command_of_a_run_is_shown_on_demand(page: Any) -> None:
    button = find(page, ".show-command")
    code = find(page, ".command code")
    assert not code.is_displayed()
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    assert code.is_displayed()
    assert code.text.startswith("nscl run split-digits-5 --method finetune --preset quick --seed 0")


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
    height = chromium.execute_script("return document.documentElement.scrollHeight")
    screen(chromium, width, height)
    wait(lambda: find_all(chromium, ".map text"))
    return chromium


@pytest.mark.parametrize("tasks", [1, 2])
def test_maps_of_few_tasks_have_room_for_their_titles(
    chromium: Any, tmp_path: Path, tasks: int
) -> None:
    make_run(tmp_path / "runs", "adam-nscl", tasks=tasks, layers={"a": 5, "b": 6}, tracked=2)
    page = opened(chromium, tmp_path / "runs")
    assert len(find_all(page, ".map")) == 3
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
        "const maps = [...document.querySelectorAll('[data-chart=share] .map svg')];"
        "const boxes = maps.map((map) => map.getBoundingClientRect());"
        "return [maps.map((m, i) => boxes[i].width / m.getAttribute('width')),"
        " boxes.map((b) => b.top)]"
    )
    assert min(shrunk) > 0.99
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
        " const axis = chart.querySelector('path.axis').getBoundingClientRect();"
        " return [...chart.querySelectorAll('path.line')]"
        "  .map((l) => l.getBoundingClientRect().right - axis.right); })"
    )
    assert all(end < 1 for chart in ends for end in chart)
    # The third task is a third and two thirds done: neither line has reached the end of it.
    assert all(end < -20 for end in ends[1])
    clips = page.execute_script(
        "return [...document.querySelectorAll('path.line')]"
        ".map((l) => l.parentNode.getAttribute('clip-path'))"
    )
    assert all(str(clip).startswith("url(#inside-") for clip in clips)


@pytest.mark.parametrize("width", [390, 1280])
def test_long_names_leave_the_numbers_their_room(chromium: Any, tmp_path: Path, width: int) -> None:
    name = "displacement since the last task, " * 6 + "and a ridge"
    make_run(tmp_path / "runs", "adam-nscl", label=name, stores="data", layers={"a": 5}, a=1)
    make_run(tmp_path / "runs", "adam-nscl", layers={"a": 5}, a=2)
    page = opened(chromium, tmp_path / "runs", width=width)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    cell = find(page, ".results tbody th")
    assert cell.size["width"] < 0.6 * width
    assert find(page, ".results tbody th .long").get_attribute("title") == name
    assert find(page, ".results tbody th .mark").is_displayed()
    assert methods(page)[0] == name
    assert all(map_.size["width"] < 0.8 * width for map_ in find_all(page, ".map"))
    assert outside(page) == []
    assert page.get_log("browser") == []


def test_names_are_told_apart_on_a_phone(chromium: Any, tmp_path: Path) -> None:
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


def test_cells_are_rounded_as_in_the_figures(chromium: Any, tmp_path: Path) -> None:
    """Halves, all but halves, next to nothing; an eighth of the directions and nearly one."""
    made = make_run(tmp_path / "runs", "adam-nscl", tasks=4, layers={"a": 8, "b": 10_000})
    rows = [[62.5], [63.5, 62.4996], [0.4, 0.0, 100.0], [1.0, 61.5, 0.5, 99.4951]]
    told = replace(made.result(), accuracy=AccuracyMatrix(rows))
    made.result_path.unlink()
    made.write_result(told)
    freed = spectra_file.read(made.spectra_path)
    for layers in freed.values():
        layers["a"]["weights"][:] = np.arange(8) < 1
        layers["b"]["weights"][:] = np.arange(10_000) < 1246
    spectra_file.write(made.spectra_path, freed)
    (section,) = sections(gather([tmp_path / "runs"]).runs)
    page = opened(chromium, tmp_path / "runs")
    figures = {"matrix": accuracy_matrix(section), "free": layer_map(section.series[0], "free")}
    for key, figure in figures.items():
        cells = [t.text for t in find_all(page, f'[data-chart="{key}"] .map text[style]')]
        assert cells == [text.get_text() for text in figure.axes[0].texts]
    assert cells == ["0.13"] * 4 + ["0.12"] * 4


def test_lines_of_a_sweep_are_told_apart(chromium: Any, tmp_path: Path) -> None:
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


def reloaded(page: Any) -> bool:
    """Load the page again; what it just stored may reach a new process a moment later."""
    time.sleep(0.2)
    page.refresh()
    return True


def test_dark_and_light_by_system_and_by_hand(page: Any) -> None:
    def ground() -> str:
        return str(page.execute_script("return getComputedStyle(document.body).backgroundColor"))

    light = ground()
    screen(page, 1280, 900, dark=True)
    dark = ground()
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(20, 23, 26)")
    assert find(page, "#theme").text == "Light"
    find(page, "#theme").click()
    assert ground() == light
    assert any(reloaded(page) and ground() == light for _ in range(5))  # remembered
    find(page, "#theme").click()
    assert ground() == dark


@pytest.mark.parametrize(
    ("name", "width", "dark"),
    [("light", 1280, False), ("dark", 1280, True), ("narrow", 390, False)],
)
def test_screens(page: Any, tmp_path: Path, name: str, width: int, dark: bool) -> None:
    screen(page, width, 900, dark=dark)
    height = page.execute_script("return document.documentElement.scrollHeight")
    screen(page, width, height, dark=dark)
    wait(lambda: len(lines(page)) == 4)
    # Nothing reaches beyond the screen, and no chart's text beyond its chart.
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    assert outside(page) == []
    folder = Path(os.environ.get("NSCL_SCREENSHOTS") or tmp_path)
    page.save_screenshot(str(folder / f"report-{name}.png"))
    with Image.open(folder / f"report-{name}.png") as image:
        assert image.width == width
        assert len(image.convert("RGB").getcolors(1 << 24) or []) > 50


def test_names_with_markup_run_no_script(chromium: Any, tmp_path: Path) -> None:
    evil = "<script>window.harm=1</script><img src=x onerror=window.harm=2>"
    make_run(tmp_path, f"a:{evil}", layers={evil: 6}, note=evil, tracked=1)
    make_run(tmp_path, f"a:{evil}", layers={evil: 6}, note="b", tracked=1)
    file = tmp_path / "page.html"
    file.write_text(render(sections(gather([tmp_path]).runs)))
    chromium.get(file.as_uri())
    assert evil in find(chromium, ".legend").text
    hover(chromium, find(chromium, '[data-chart="acc"] svg'))
    assert chromium.execute_script("return window.harm") is None
    assert chromium.get_log("browser") == []
