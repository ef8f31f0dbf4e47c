"""What every test and every doctest relies on."""

from importlib.util import find_spec

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

# Adapters import their frameworks, which not every environment has.
ADAPTERS = {
    "lightning": "integrations",
    "peft": "integrations",
    "transformers": "integrations",
    "tensorboard": "training/tracking",
    "wandb": "training/tracking",
}
missing = [name for name in ADAPTERS if find_spec(name) is None]
collect_ignore_glob = [f"src/nscl/{ADAPTERS[name]}/{name}*.py" for name in missing]


@pytest.fixture(autouse=True)
def _seeded(doctest_namespace: dict[str, object]) -> None:
    torch.manual_seed(0)
    doctest_namespace.update(torch=torch, nn=nn)
