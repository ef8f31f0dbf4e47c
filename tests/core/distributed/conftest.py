"""Two ranks for all tests of this folder."""

import os

import pytest

from tests.core.distributed.parallel_launch import Ranks, launch


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    root = tmp_path_factory.getbasetemp()
    return launch(root.parent if "PYTEST_XDIST_WORKER" in os.environ else root)
