"""Skips are failures where the libraries are required, as in `make test-integrations`.

A library that cannot be imported would otherwise look like a run in which all went well.
"""

import os
from collections.abc import Generator
from typing import Any

import pytest

REQUIRED = "NSCL_REQUIRE_INTEGRATIONS"
# What may be missing on a machine where the libraries are installed: the reasons of its tests.
MAY_BE_MISSING = (
    "torchvision has no build for this torch here, so avalanche-lib is not installed",
    "inductor needs a C++ compiler",
)


def failed_if_required(report: Any) -> None:
    """Turn a skip for any other reason into a failure that names the reason."""
    if os.environ.get(REQUIRED, "0") in ("", "0") or not report.skipped:
        return
    if hasattr(report, "wasxfail"):
        return
    reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not any(allowed in reason for allowed in MAY_BE_MISSING):
        report.outcome = "failed"
        report.longrepr = f"{REQUIRED} is set, and {report.nodeid} would be skipped: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    failed_if_required(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    failed_if_required(report)
    return report
