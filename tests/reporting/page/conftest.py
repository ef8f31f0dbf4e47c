"""The report's page, opened in a browser."""

from collections.abc import Iterator
from typing import Any

import pytest

from nscl.reporting import Written
from tests.reporting.browsing import drawn, screen


@pytest.fixture
def page(chromium: Any, written: Written) -> Iterator[Any]:
    """The report, freshly opened on a wide light screen; a message in the console is a failure."""
    screen(chromium, 1280, 900)
    chromium.get(written.page.as_uri())
    chromium.execute_script("sessionStorage.clear()")
    chromium.get(written.page.as_uri())
    yield drawn(chromium)
    assert chromium.get_log("browser") == []
