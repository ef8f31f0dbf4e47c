"""The page in a real Chromium: it loads cleanly, sorts, filters, switches, tells values.

Screenshots are written to the folder of the environment variable NSCL_SCREENSHOTS, if it is set.
"""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from nscl.metrics import AccuracyMatrix
from nscl.reporting import Written, gather, sections, serving
from nscl.reporting.figures.matrices import accuracy_matrix, layer_map
from nscl.reporting.page import render
from nscl.results import MetricsLog
from nscl.results import spectra as spectra_file
from tests.reporting.making import EPOCHS, epochs, make_run

pytestmark = pytest.mark.browser
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--force-device-scale-factor=1",
)  # fmt: skip
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    driver_path = shutil.which("chromedriver")
    if CHROMIUM is None or driver_path is None:
        pytest.skip("no chromium with chromedriver here: `make test-browser` installs them")
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, service=webdriver.ChromeService(driver_path))
    yield driver
    driver.quit()


@pytest.fixture
def page(chromium: Any, written: Written) -> Iterator[Any]:
    """The report, freshly opened on a wide light screen; a message in the console is a failure."""
    screen(chromium, 1280, 900)
    chromium.get(written.page.as_uri())
    chromium.execute_script("sessionStorage.clear()")
    chromium.get(written.page.as_uri())
    yield chromium
    assert chromium.get_log("browser") == []


def screen(driver: Any, width: int, height: int, *, dark: bool = False) -> None:
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def find(driver: Any, selector: str) -> Any:
    return driver.find_element("css selector", selector)


def find_all(driver: Any, selector: str) -> list[Any]:
    found: list[Any] = driver.find_elements("css selector", selector)
    return found


def methods(driver: Any) -> list[str]:
    """Visible rows of the results table."""
    rows = find_all(driver, ".results tbody th")
    return [row.get_attribute("data-value") for row in rows if row.is_displayed()]


def hover(driver: Any, element: Any) -> str:
    from selenium.webdriver import ActionChains

    # Scrolling hides the tip: be done with it, two frames later, before the mouse moves.
    driver.execute_async_script(
        "const [element, done] = arguments; element.scrollIntoView({block: 'center'});"
        "requestAnimationFrame(() => requestAnimationFrame(done))",
        element,
    )
    ActionChains(driver).move_to_element(element).perform()
    wait(lambda: find(driver, "#tip").is_displayed())
    return str(find(driver, "#tip").text)


def wait(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def lines(driver: Any, chart: str = "acc") -> list[str]:
    found = find_all(driver, f'[data-chart="{chart}"] path.line')
    return [line.get_attribute("data-series") for line in found]


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


@contextmanager
def live(page: Any, runs: Path) -> Iterator[None]:
    """The live page of some runs."""
    screen(page, 1280, 900)
    with serving([runs]) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            page.get(server.url)
            yield
        finally:
            server.shutdown()
            thread.join()
        page.get("about:blank")


def test_the_live_page_reloads_itself(chromium: Any, tmp_path: Path) -> None:
    make_run(tmp_path, "finetune", finished=False, tasks=2)
    with live(chromium, tmp_path):
        assert lines(chromium) == ["finetune (unfinished)"]
        make_run(tmp_path, "gem")
        legend = "return document.querySelector('.legend')?.textContent ?? ''"
        wait(lambda: "gem" in chromium.execute_script(legend))  # or nothing, amid a reload
        wait(lambda: chromium.execute_script("return document.readyState") == "complete")
        assert methods(chromium) == ["gem"]
    assert [entry for entry in chromium.get_log("browser") if entry["level"] == "SEVERE"] == []


def chosen(page: Any) -> dict[str, Any]:
    """What a reader has done to the page, as it looks."""
    from selenium.webdriver.support.select import Select

    task = Select(find(page, '[data-chart="task"] select')).first_selected_option.text
    (heading,) = find_all(page, ".results th[aria-sort]") or [None]
    return {
        "rows": methods(page),
        "words": find(page, ".filter").get_attribute("value"),
        "keep": find(page, '[data-keep][aria-pressed="true"]').text,
        "count": find(page, ".count").text,
        "sorted": heading and (heading.text, heading.get_attribute("aria-sort")),
        "commands": [e.text for e in find_all(page, ".command code") if e.is_displayed()],
        "details": [d.get_attribute("open") for d in find_all(page, "details")],
        "task": task,
        "curves": [p.get_attribute("d") for p in find_all(page, '[data-chart="task"] path.line')],
        "off": [b.text for b in find_all(page, '.legend [aria-pressed="false"]')],
    }


def choose(page: Any) -> None:
    """Everything that a reader can do to the page."""
    from selenium.webdriver.support.select import Select

    find(page, ".filter").send_keys("nscl")
    find(page, '[data-keep="no-data"]').click()
    for _ in range(2):
        find_all(page, ".results thead button")[2].click()
    find(page, '.legend [data-series="gem"]').click()
    Select(find(page, '[data-chart="task"] select')).select_by_visible_text("task 3")
    for button in (find_all(page, ".show-command")[1], find(page, "summary")):
        page.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
        button.click()


def test_what_the_reader_chose_outlives_a_reload(chromium: Any, tmp_path: Path) -> None:
    runs = [make_run(tmp_path, "adam-nscl", a=a) for a in (10, 20, 30)]
    make_run(tmp_path, "gem", stores="data")
    with live(chromium, tmp_path):
        untouched = chosen(chromium)
        choose(chromium)
        before = chosen(chromium)
        assert all(before[what] != untouched[what] for what in before)
        chromium.execute_script("window.before = true")
        time.sleep(0.2)  # what was just stored reaches the new page's process a moment later
        os.utime(runs[0].metrics_path)
        loaded = "return !window.before && document.querySelector('[data-chart=task] path.line')"
        wait(lambda: chromium.execute_script(loaded))
        assert chosen(chromium) == before
        make_run(tmp_path, "finetune")  # a row before all others moves none of it
        chart = "return document.querySelector('[data-chart=acc]')?.innerHTML ?? ''"
        wait(lambda: "finetune" in chromium.execute_script(chart))
        after = chosen(chromium)
        assert len(after.pop("curves")) == len(before.pop("curves")) + 1
        assert after == before | {"count": "3 of 5 shown"}
    assert [entry for entry in chromium.get_log("browser") if entry["level"] == "SEVERE"] == []


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
