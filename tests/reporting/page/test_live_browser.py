"""The page of `nscl watch` in a real browser: it reloads, and keeps what the reader chose."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nscl.reporting import serving
from tests.reporting.browsing import LINE, drawn, find, find_all, lines, methods, screen, wait
from tests.reporting.making import make_run

pytestmark = pytest.mark.browser


@contextmanager
def live(page: Any, runs: Path) -> Iterator[None]:
    """The live page of some runs."""
    screen(page, 1280, 900)
    with serving([runs]) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            page.get(server.url)
            drawn(page)
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
        assert methods(drawn(chromium)) == ["gem"]
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
        "curves": [p.get_attribute("d") for p in find_all(page, f'[data-chart="task"] {LINE}')],
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
        curves = untouched["curves"]
        choose(chromium)
        wait(lambda: chosen(chromium)["curves"] not in (curves, curves[:-1]))
        before = chosen(chromium)
        assert all(before[what] != untouched[what] for what in before)
        chromium.execute_script("window.before = true")
        time.sleep(0.2)  # what was just stored reaches the new page's process a moment later
        os.utime(runs[0].metrics_path)
        wait(lambda: chromium.execute_script("return !window.before"))
        assert chosen(drawn(chromium)) == before
        make_run(tmp_path, "finetune")  # a row before all others moves none of it
        legend = "return document.querySelector('.legend')?.textContent ?? ''"
        wait(lambda: "finetune" in chromium.execute_script(legend))
        after = chosen(drawn(chromium))
        assert len(after.pop("curves")) == len(before.pop("curves")) + 1
        assert after == before | {"count": "3 of 5 shown"}
    assert [entry for entry in chromium.get_log("browser") if entry["level"] == "SEVERE"] == []
