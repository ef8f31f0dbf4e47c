"""What all tests of the core rely on: one thread, and two ranks that are started once."""

import os

import pytest
import torch

from tests.core.distributed.parallel_launch import Ranks, launch

# The core's tensors are small here: threads would wait for each other longer than they work.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    """Side by side, test processes share one start."""
    root = tmp_path_factory.getbasetemp()
    return launch(root.parent if "PYTEST_XDIST_WORKER" in os.environ else root)
