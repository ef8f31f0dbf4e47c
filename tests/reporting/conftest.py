"""One laboratory and one report of it for all tests of a session that only look."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nscl.reporting import Section, Written, gather, sections, write_report
from tests.reporting.browsing import opened
from tests.reporting.making import laboratory


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return laboratory(tmp_path_factory.mktemp("lab") / "runs")


@pytest.fixture(scope="session")
def section(lab: Path) -> Section:
    (found,) = sections(gather([lab]).runs)
    return found


@pytest.fixture(scope="session")
def written(lab: Path, tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write_report([lab], tmp_path_factory.mktemp("out") / "report")


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with opened(tmp_path_factory.mktemp("profile")) as driver:
        yield driver
