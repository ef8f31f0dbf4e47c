"""A real Chromium, and how tests look at a page in it."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

TIP = "#vg-tooltip-element"
# What Vega makes of lines, points, heat maps and their cells.
LINE, POINT, MAP = ".mark-line path[aria-label]", ".mark-symbol path", ".cell .mark-rect"
CELL, NUMBER = f"{MAP} path", ".cell .mark-text.role-mark text"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--force-device-scale-factor=1",
)  # fmt: skip
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@contextmanager
def opened(profile: Path) -> Iterator[Any]:
    """A browser of its own, or a skipped test where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    driver_path = shutil.which("chromedriver")
    if CHROMIUM is None or driver_path is None:
        pytest.skip("no chromium with chromedriver here: `make test-browser` installs them")
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, service=webdriver.ChromeService(driver_path))
    try:
        yield driver
    finally:
        driver.quit()


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
    rows = find_all(driver, ".results tbody th[scope=row]")
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
    wait(lambda: [tip for tip in find_all(driver, TIP) if tip.is_displayed()])
    return tip(driver)


def tip(driver: Any) -> str:
    return str(find(driver, TIP).text)


def drawn(driver: Any) -> Any:
    """The page as soon as Vega has drawn all charts."""
    count = "return [document.readyState, ...['[data-chart]', '[data-chart] svg.marks'].map("
    count += "(selector) => document.querySelectorAll(selector).length)]"

    def finished() -> bool:
        state, charts, pictures = driver.execute_script(count)
        return bool(state == "complete" and charts == pictures)

    wait(finished)
    return driver


def wait(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def lines(driver: Any, chart: str = "acc") -> list[str]:
    found = find_all(driver, f'[data-chart="{chart}"] {LINE}')
    return [line.get_attribute("aria-label") for line in found]
