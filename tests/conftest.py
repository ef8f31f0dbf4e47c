"""What tests of all rooms share."""

import os

import pytest

from tests.quick_runs import QuickRuns


@pytest.fixture(scope="session")
def quick_runs(tmp_path_factory: pytest.TempPathFactory) -> QuickRuns:
    """Side by side, test processes have folders of their own inside one that all can see."""
    root = tmp_path_factory.getbasetemp()
    return QuickRuns(root.parent if "PYTEST_XDIST_WORKER" in os.environ else root)
