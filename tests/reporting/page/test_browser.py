"""The page in a real Chromium: it loads cleanly, sorts, filters, switches, shows values."""

import time
from pathlib import Path
from typing import Any

import pytest

from nscl.reporting import gather, sections
from nscl.reporting.figures.style import inks
from nscl.reporting.page.html import render
from nscl.reporting.plot_data.curves import mean_matrix
from nscl.reporting.plot_data.spectral import spectra, spectral_table
from tests.reporting.browsing import (
    CELL,
    LINE,
    MAP,
    POINT,
    TIP,
    drawn,
    find,
    find_all,
    hover,
    lines,
    methods,
    screen,
    tip,
    wait,
)
from tests.reporting.making import make_run

pytestmark = pytest.mark.browser


def test_a_click_on_a_heading_sorts(page: Any) -> None:
    assert methods(page) == ["adam-nscl (a=10)", "adam-nscl (a=1000)", "finetune", "gem"]
    heading = next(b for b in find_all(page, ".results thead button") if "ACC" in b.text)

    def shown() -> list[float]:
        cells = find_all(page, ".results tbody:first-of-type tr > td:nth-child(3)")
        return [float(cell.get_attribute("data-value")) for cell in cells]

    heading.click()
    assert shown() == sorted(shown(), reverse=True)
    assert find(page, "th[aria-sort]").get_attribute("aria-sort") == "descending"
    heading.click()
    assert shown() == sorted(shown())
    assert methods(page)[-1] == "gem"  # it keeps old data: a group of its own
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
    groups = [g.text for g in find_all(page, ".results .group") if g.is_displayed()]
    assert groups == ["keep samples of old tasks"]
    find(page, '[data-keep="no-data"]').click()
    assert methods(page) == ["adam-nscl (a=10)", "adam-nscl (a=1000)", "finetune"]
    find(page, '[data-keep="all"]').click()
    assert len(methods(page)) == 4


def test_methods_are_switched_on_and_off_in_all_charts(page: Any) -> None:
    everything = ["finetune", "gem", "adam-nscl (a=10)", "adam-nscl (a=1000)"]
    charts = ("acc", "task", "times", "losses")
    assert all(lines(page, chart) == everything for chart in charts)
    assert len(find_all(page, f'[data-chart="matrix"] {MAP}')) == 4
    find(page, '.legend [data-series="gem"]').click()
    others = [label for label in everything if label != "gem"]
    wait(lambda: all(lines(page, chart) == others for chart in charts))
    wait(lambda: len(find_all(page, f'[data-chart="matrix"] {MAP}')) == 3)
    wait(lambda: len(find_all(page, f'[data-chart="plane"] {POINT}')) == 3)
    find_all(page, ".legend button")[-1].click()
    wait(lambda: sorted(lines(page)) == sorted(everything))  # the last one drawn is on top
    find_all(page, ".legend button")[-1].click()
    wait(lambda: lines(page) == [])
    assert "all methods are switched off" in find(page, '[data-chart="acc"]').text


def test_hovering_shows_values(page: Any, lab: Path) -> None:
    (section,) = sections(gather([lab]).runs)
    second = mean_matrix(section.series[0])[1][0]
    assert hover(page, find_all(page, f'[data-chart="matrix"] {CELL}')[1]).split("\n") == [
        "finetune", "after task 2", "accuracy on task 1", f"accuracy {second:.2f} %",
    ]  # fmt: skip
    assert "after task" in hover(page, find(page, '[data-chart="acc"] svg'))
    assert all(label in tip(page) for label in ("finetune", "gem", " %"))
    assert "BWT (points)" in hover(page, find(page, f'[data-chart="plane"] {POINT}'))
    assert "direction" in hover(page, find(page, '[data-chart="spectrum"] svg'))
    assert "layers.0" in hover(page, find(page, f'[data-chart="free"] {CELL}'))
    shares = spectral_table(spectra(section.series[2])[1], "share")[0]
    for cell, share in zip(
        find_all(page, f'[data-chart="share"] {CELL}')[:2], shares, strict=False
    ):
        found = hover(page, cell).rsplit(" ", 1)[1].replace("−", "-")
        assert float(found) == float(f"{share:.3g}")


def test_lines_at_the_pointer_are_listed_from_the_largest(page: Any) -> None:
    hover(page, find(page, '[data-chart="acc"] svg'))
    values = [
        float(row.text.split(" ± ")[0].rsplit(" ", 1)[1]) for row in find_all(page, f"{TIP} tr")
    ]
    assert len(values) == 4
    assert values == sorted(values, reverse=True)


def test_series_have_the_colours_and_dashes_of_the_paper(page: Any, lab: Path) -> None:
    (section,) = sections(gather([lab]).runs)
    for line, ink in zip(find_all(page, f'[data-chart="acc"] {LINE}'), inks(section), strict=True):
        rgb = tuple(int(ink.colour[i : i + 2], 16) for i in (1, 3, 5))
        assert line.value_of_css_property("stroke") == f"rgb{rgb}"
        dashes = [float(d) for d in (line.get_attribute("stroke-dasharray") or "").split(",") if d]
        width = float(line.get_attribute("stroke-width"))
        drawn = [] if dashes in ([], [1, 0]) else [dash / width for dash in dashes]
        assert drawn == pytest.approx([] if ink.dash == "-" else list(ink.dash[1]), abs=0.05)


def test_a_choice_of_task_draws_another_curve(page: Any) -> None:
    from selenium.webdriver.support.select import Select

    def curves() -> list[str]:
        return [p.get_attribute("d") for p in find_all(page, f'[data-chart="task"] {LINE}')]

    before = curves()
    Select(find(page, '[data-chart="task"] select')).select_by_visible_text("task 2")
    wait(lambda: curves() != before)
    assert all(a != b for a, b in zip(curves(), before, strict=True))


def test_the_command_of_a_run_is_shown_on_demand(page: Any) -> None:
    button = find(page, ".show-command")
    code = find(page, ".command code")
    assert not code.is_displayed()
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    assert code.is_displayed()
    assert code.text.startswith("nscl run split-digits-5 --method finetune --preset quick --seed 0")


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


def test_names_with_markup_run_no_script(chromium: Any, tmp_path: Path) -> None:
    evil = "<script>window.harm=1</script><img src=x onerror=window.harm=2>"
    make_run(tmp_path, f"a:{evil}", layers={evil: 6}, note=evil, tracked=1)
    make_run(tmp_path, f"a:{evil}", layers={evil: 6}, note="b", tracked=1)
    file = tmp_path / "page.html"
    file.write_text(render(sections(gather([tmp_path]).runs)))
    chromium.get(file.as_uri())
    drawn(chromium)
    assert evil in find(chromium, ".legend").text
    hover(chromium, find(chromium, '[data-chart="acc"] svg'))
    assert chromium.execute_script("return window.harm") is None
    assert chromium.get_log("browser") == []
