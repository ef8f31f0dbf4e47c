"""What every test and every doctest relies on."""

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from torch import nn

# The same examples on every machine, reported as drawn: a red build is repeatable and quick to see.
settings.register_profile(
    "nscl",
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
    print_blob=False,
)
settings.load_profile("nscl")


@pytest.fixture(autouse=True)
def _seeded(doctest_namespace: dict[str, object]) -> None:
    torch.manual_seed(0)
    doctest_namespace.update(torch=torch, nn=nn)
