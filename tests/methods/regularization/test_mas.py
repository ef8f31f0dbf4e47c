"""MAS: sensitivity of the outputs, sample by sample, without labels."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from nscl.errors import FeatureError
from nscl.methods.regularization.mas import MAS, mas_importance
from nscl.methods.regularization.per_sample_grads import through
from nscl.models import ConvNet, MultiHead
from nscl.training.config.schema import ConfigError
from nscl.training.process.device import Ranks
from nscl.training.setup import Setup
from tests.methods.regularization.quadratics import Scale, data, network, pictures
from tests.methods.setups import frozen, moved
from tests.runs import small


def sensitivity(model: Any, batches: Any, task: int = 0, **options: Any) -> dict[str, Tensor]:
    shared = dict(model.named_parameters())
    if isinstance(model, MultiHead):
        shared = dict(model.backbone_parameters())
    output = through(model, task)
    return mas_importance(model, batches, output=output, parameters=shared, **options)


def test_one_weight_two_samples() -> None:
    """w = −½, x = 1 and 2: row 10 of the sanity table; the un-squared norm would give 1.5."""
    assert sensitivity(Scale(-0.5), data(1.0, 2.0))["w"].item() == pytest.approx(2.5, abs=1e-12)


def test_signs_do_not_cancel() -> None:
    """Outputs w + x at w = 0, x = ±1: gradients +2 and −2."""

    class Shift(Scale):
        def forward(self, x: Tensor, task: int) -> Tensor:
            return self.w + x

    found = [
        sensitivity(Shift(0.0), data(1.0, -1.0), unit=u)["w"].item() for u in ("sample", "batch")
    ]
    assert found == [2.0, 0.0]


def test_equals_a_loop_over_samples() -> None:
    model = MultiHead(ConvNet(1, width=3, depth=2), [2, 4]).double()
    images = torch.randn(7, 1, 6, 6, dtype=torch.float64)
    model(images, 1)
    found = sensitivity(model, [(images, torch.zeros(7))], task=1)
    shared = dict(model.backbone_parameters())
    sums = {name: torch.zeros_like(p) for name, p in shared.items()}
    model.eval()
    for image in images:
        norm = model(image[None], 1).square().sum()
        for name, g in zip(shared, torch.autograd.grad(norm, list(shared.values())), strict=True):
            sums[name] += g.abs() / 7
    for name, expected in sums.items():
        torch.testing.assert_close(found[name], expected, rtol=1e-10, atol=1e-14)
        assert expected.max() > 0


def build(tmp_path: Path, **options: Any) -> tuple[Setup, MAS]:
    built = Setup.build(small("mas", tmp_path, options=options), Ranks())
    assert isinstance(built.method, MAS)
    return built, built.method


def test_a_parameter_without_effect_is_free_to_move(tmp_path: Path) -> None:
    """A unit that never fires: its weights have no importance, hence no penalty."""
    built, method = build(tmp_path)
    layer = built.model.backbone.layers[0]  # type: ignore[index, union-attr]
    with torch.no_grad():
        layer.bias[3] = -1e6
    method.remember(0)
    omega = method.penalty.importance["backbone.layers.0.weight"]
    assert omega[3].max() == 0
    assert omega[4].max() > 0
    with torch.no_grad():
        layer.weight[3] += 5.0
    assert method.metrics()["penalty"] == 0.0


def test_labels_are_not_looked_at(tmp_path: Path) -> None:
    found = []
    for change in (False, True):
        built, method = build(tmp_path)
        if change:
            built.stream[0].train.labels.fill_(0)
        method.remember(0)
        found.append(method.penalty.importance)
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_the_head_of_the_finished_task_answers(tmp_path: Path) -> None:
    built, method = build(tmp_path)
    with torch.no_grad():
        for p in built.model.head(1).parameters():
            p.zero_()
    method.remember(1)
    assert method.penalty.steepest() == 0.0
    method.remember(0)
    assert method.penalty.steepest() > 0.0


@pytest.mark.parametrize("accumulate", ["sum", "running_mean"])
def test_tasks_add_up_and_the_latest_weights_count(accumulate: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"accumulate": accumulate}
    if accumulate == "running_mean":
        options["old_share"] = 0.25
    _, method = build(tmp_path, **options)
    alone = []
    for task in range(3):
        _, other = build(tmp_path)
        with torch.no_grad():
            for p in method.shared_parameters().values():
                p.mul_(1.1)
        other.model.load_state_dict(method.model.state_dict())
        other.remember(task)
        alone.append(other.penalty.importance)
        method.remember(task)
    shares = (1.0, 1.0, 1.0) if accumulate == "sum" else (0.0625, 0.1875, 0.75)
    for name, omega in method.penalty.importance.items():
        expected = sum(share * one[name] for share, one in zip(shares, alone, strict=True))
        torch.testing.assert_close(omega, expected, rtol=1e-5, atol=1e-7)
        assert torch.equal(method.penalty.centre[name], method.shared_parameters()[name].detach())


def test_settings_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="old_share belongs to accumulate running_mean"):
        small("mas", tmp_path, options={"old_share": 0.9})
    with pytest.raises(ConfigError, match="strength"):
        small("mas", tmp_path, options={"strength": -1.0})


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
    found = mas_importance(nn.Linear(1, 1), [batch], output=output, parameters=theta)
    assert found["unused"].tolist() == [0]
    assert found["used"].abs().min() > 0


def test_no_images_is_an_error() -> None:
    with pytest.raises(FeatureError, match="yielded none"):
        mas_importance(
            nn.Linear(1, 1),
            [],
            output=lambda theta, x: x * theta["w"],
            parameters={"w": torch.zeros(1)},
        )
