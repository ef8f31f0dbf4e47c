"""What a pass has found: which layers, norms and parameters were used, and sums of their rows."""

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.errors import FeatureError

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


def test_a_layer_that_never_ran_stays_free() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.one(self.body(x))

    model = Heads()
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-12))
    memory.remember([torch.randn(9, 3)])
    lines = {line.name: line for line in memory.report().layers}
    assert lines["two"].protected_by == "free until remembered"
    assert lines["two"].free == lines["two"].features == 4
    assert lines["one"].free == 0
    with pytest.raises(FeatureError, match="no protected layer was called"):
        memory.remember([torch.randn(2, 3)], forward=lambda m, x: x)
