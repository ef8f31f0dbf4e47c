"""MAS importance against METHODS §6, §19 row 10 and one sample at a time."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from nscl.errors import NsclError
from nscl.methods.mas_importance import mas_importance
from nscl.models import build_model
from tests.methods.setups import frozen, moved


def line(theta: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return x * theta["w"]


def test_the_value_of_row_10() -> None:
    found = mas_importance(line, {"w": torch.tensor([-0.5])}, [torch.tensor([[1.0], [2.0]])])
    assert found["w"].item() == pytest.approx(2.5)


def test_signs_do_not_cancel() -> None:
    """Gradients +2 and −2: 2 by sample, 0 by batch."""

    def output(theta: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return 1 + x * theta["w"]

    images = torch.tensor([[1.0], [-1.0]])
    assert mas_importance(output, {"w": torch.zeros(1)}, [images])["w"].item() == 2


@pytest.mark.parametrize("chunk", [None, 1, 4])
def test_it_equals_one_sample_after_the_other(chunk: int | None) -> None:
    model = build_model("convnet", image_shape=(1, 8, 8), classes_per_task=(3,), width=4).double()
    model.train()
    model(torch.randn(16, 1, 8, 8, dtype=torch.float64), 0)  # statistics that are not 0 and 1
    model.eval()
    parameters = dict(model.backbone_parameters())
    before = frozen(model.state_dict())
    batches = [torch.randn(n, 1, 8, 8, dtype=torch.float64) for n in (6, 3)]
    found = mas_importance(
        lambda theta, x: functional_call(model, theta, (x, 0)), parameters, batches, chunk=chunk
    )
    truth = {name: torch.zeros_like(p) for name, p in parameters.items()}
    for image in torch.cat(batches):
        length = model(image[None], 0).square().sum()
        gradients = torch.autograd.grad(length, list(parameters.values()))
        for name, gradient in zip(parameters, gradients, strict=True):
            truth[name] += gradient.abs() / 9
    for name, value in truth.items():
        assert torch.allclose(found[name], value, rtol=1e-10, atol=1e-12)
        assert not found[name].requires_grad
    assert not moved(before, model.state_dict())


def test_what_does_not_reach_the_output_is_free() -> None:
    layer = nn.Linear(2, 1)

    def output(theta: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return x @ theta["used"].T

    theta = {"used": layer.weight, "unused": layer.bias}
    found = mas_importance(output, theta, [torch.ones(3, 2)])
    assert found["unused"].tolist() == [0]
    assert found["used"].abs().min() > 0


def test_no_images_is_an_error() -> None:
    with pytest.raises(NsclError, match="at least one image"):
        mas_importance(line, {"w": torch.zeros(1)}, [])
