"""The factor G of a pass: labels that are drawn, and layers that no gradient reaches."""

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.core.covariance.packed import unpack

pytestmark = pytest.mark.filterwarnings("ignore:no optimizer is protected:nscl.NsclWarning")


def remembered(memory: nscl.Memory, name: str) -> Tensor:
    state = memory.state_dict()
    samples = state["metadata"]["gradients"][name]["rows"]
    return unpack(state["tensors"][f"gradient/{name}"]) / samples


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_drawn_labels_give_the_fisher_information_of_softened_logits(temperature: float) -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 3).double()
    x = torch.randn(1, 2).double().expand(20_000, 2)
    memory = nscl.Memory(model, rule=nscl.Penalty())
    memory.remember([x], temperature=temperature)
    p = (model(x[:1])[0] / temperature).softmax(-1)
    truth = (torch.diag(p) - torch.outer(p, p)) / temperature**2
    assert torch.allclose(remembered(memory, "model")[0], truth, atol=0.01)


def test_a_confident_model_is_held_all_the_same() -> None:
    """At temperature 1 its Fisher information is next to nothing, softened it is not."""
    model = nn.Linear(3, 3, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(12 * torch.eye(3))
    sums = {}
    for temperature in (1.0, 4.0):
        memory = nscl.Memory(model)
        memory.remember([torch.eye(3).double().repeat(200, 1)], temperature=temperature)
        sums[temperature] = remembered(memory, "model")[0].trace()
    assert sums[1.0] < 1e-3 < sums[4.0]


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_a_temperature_that_is_none_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature must be a positive number"):
        nscl.Memory(nn.Linear(2, 2)).remember([torch.randn(3, 2)], temperature=temperature)


def test_unit_noise_gives_the_jacobian() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)).double()
    memory = nscl.Memory(model, rule=nscl.Penalty())
    memory.remember([torch.randn(50_000, 2).double()], likelihood="gaussian")
    w = model[1].weight
    assert torch.allclose(remembered(memory, "0")[0], w.mT @ w, rtol=0.03)


def test_the_users_random_numbers_stay_and_a_pass_can_be_repeated() -> None:
    model, x = nn.Linear(4, 3), torch.randn(8, 4)
    before = torch.get_rng_state()
    found = []
    for _ in range(2):
        memory = nscl.Memory(model, rule=nscl.Penalty())
        memory.remember([x])
        found.append(remembered(memory, "model"))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*found)


def test_an_output_without_a_known_likelihood_is_an_error() -> None:
    model = nn.Linear(4, 1)
    memory = nscl.Memory(model, rule=nscl.Penalty())
    with pytest.raises(nscl.NsclError, match=r"likelihood='categorical' or 'gaussian'.*'input'"):
        memory.remember([torch.randn(5, 4)])
    assert memory.tasks == 0
    with pytest.raises(ValueError, match="likelihood must be one of 'categorical', 'gaussian'"):
        memory.remember([torch.randn(5, 4)], likelihood="poisson")  # type: ignore[arg-type]


def test_a_layer_that_no_gradient_reaches_is_held_by_its_inputs_with_a_warning() -> None:
    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.first(x).detach())
            return out

    memory = nscl.Memory(Cut(), rule=nscl.Penalty())
    with pytest.warns(nscl.NsclWarning, match="all outputs count alike in first"):
        report = memory.remember([torch.randn(6, 4)])
    assert [layer.protected_by for layer in report.layers] == ["inputs", "both factors"]
