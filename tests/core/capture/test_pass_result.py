"""What a pass has found: which layers, norms and parameters were used, and sums of their rows."""

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.core.capture.batch import call
from nscl.core.capture.data_pass import Forward, Pass
from nscl.core.capture.pass_result import PassResult, run_on_all_ranks
from nscl.core.model.inventory import take_inventory
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


class Parts(nn.Module):
    """A part of each kind that a batch uses, and one that it does not."""

    def __init__(self) -> None:
        super().__init__()
        self.twin, self.other, self.idle = (nn.Linear(3, 3) for _ in range(3))
        self.norm, self.quiet, self.late = nn.LayerNorm(3), nn.LayerNorm(3), nn.LayerNorm(3)
        self.scale, self.spare = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        self.late(x)  # runs, and no output depends on it
        return self.norm(self.twin(x) + self.other(x)) * self.scale


def found_in(model: nn.Module, batches: list[Tensor], forward: Forward = call) -> PassResult:
    found = take_inventory(model)
    current = Pass(model, found, dict(found.elementwise()))
    return run_on_all_ranks(current, batches, forward, None, progress=False)


def test_what_was_used_is_listed_and_layers_with_one_input_share_its_covariance() -> None:
    model, batches = Parts().double(), [torch.randn(n, 3).double() for n in (4, 2)]
    found = found_in(model, batches)
    rows = torch.cat([torch.cat(batches), torch.ones(6, 1)], 1)
    assert list(found.covariances) == ["twin", "other"]
    assert found.covariances["twin"] is found.covariances["other"]
    assert found.covariances["twin"].rows == 6
    assert torch.allclose(found.covariances["twin"].dense()[0], rows.T @ rows / 6, atol=1e-14)
    assert (found.norms_seen, found.used) == ({"norm", "late"}, {"scale"})
    assert set(found.anchors) == {"norm.weight", "norm.bias", "scale"}
    assert found.unreached == ["late.weight", "late.bias"]
    assert found.gradients == {}


def test_a_pass_that_finds_nothing_is_an_error() -> None:
    with pytest.raises(FeatureError, match="remember got no batches"):
        found_in(Parts(), [])
    with pytest.raises(FeatureError, match="no protected layer was called"):
        found_in(Parts(), [torch.randn(2, 3)], lambda model, x: x * model.scale)
