"""What the tests of all folders share."""

import os

import pytest

from tests.quick_runs import QuickRuns

#: Where tests start processes of their own, or train for long.
LONG = ("tests/cli/", "tests/training/", "tests/test_examples", "tests/test_own_method")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first, so that at the end no test process waits for the other's last one."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.fixture(scope="session")
def quick_runs(tmp_path_factory: pytest.TempPathFactory) -> QuickRuns:
    """Side by side, test processes have folders of their own inside one that all can see."""
    root = tmp_path_factory.getbasetemp()
    return QuickRuns(root.parent if "PYTEST_XDIST_WORKER" in os.environ else root)
