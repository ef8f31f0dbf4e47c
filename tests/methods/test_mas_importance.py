"""MAS importance through any output, not only a head of the network: what MUC-MAS asks of it."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from nscl.errors import FeatureError
from nscl.methods.mas_importance import mas_importance
from tests.methods.bowls import network, pictures
from tests.methods.setups import frozen, moved

ANY = nn.Linear(1, 1)


def line(theta: dict[str, Tensor], x: Tensor) -> Tensor:
    return x * theta["w"]


def test_an_output_of_ones_own() -> None:
    """Parameters that no module has: METHODS §19 row 10."""
    batch = (torch.tensor([[1.0], [2.0]]), torch.zeros(2))
    found = mas_importance(ANY, [batch], output=line, parameters={"w": torch.tensor([-0.5])})
    assert found["w"].item() == pytest.approx(2.5)


def test_a_classifier_beside_the_network_equals_one_sample_after_the_other() -> None:
    model, batches = network(), pictures(6, 3)
    shared = {n.removeprefix("backbone."): p for n, p in model.backbone_parameters()}
    side = torch.randn(4, model.features, dtype=torch.float64)
    before = frozen(model.state_dict())

    def output(theta: dict[str, Tensor], x: Tensor) -> Tensor:
        features: Tensor = functional_call(model.backbone, theta, (x,))
        return features @ side.T

    found = mas_importance(model, batches, output=output, parameters=shared)
    truth = {name: torch.zeros_like(p) for name, p in shared.items()}
    model.eval()
    for image in torch.cat([images for images, _ in batches]):
        length = (model.backbone(image[None]) @ side.T).square().sum()
        gradients = torch.autograd.grad(length, list(shared.values()))
        for name, gradient in zip(shared, gradients, strict=True):
            truth[name] += gradient.abs() / 9
    for name, value in truth.items():
        torch.testing.assert_close(found[name], value, rtol=1e-10, atol=1e-12)
        assert not found[name].requires_grad
    assert not moved(before, model.state_dict())


def test_what_does_not_reach_the_output_is_free() -> None:
    def output(theta: dict[str, Tensor], x: Tensor) -> Tensor:
        return x @ theta["used"].T

    theta = {"used": torch.randn(1, 2), "unused": torch.randn(1)}
    batch = (torch.ones(3, 2), torch.zeros(3))
    found = mas_importance(ANY, [batch], output=output, parameters=theta)
    assert found["unused"].tolist() == [0]
    assert found["used"].abs().min() > 0


def test_no_images_is_an_error() -> None:
    with pytest.raises(FeatureError, match="yielded none"):
        mas_importance(ANY, [], output=line, parameters={"w": torch.zeros(1)})
