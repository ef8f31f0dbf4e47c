"""EWC: its two forms, by hand and against penalties written out task by task."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nscl.methods.base import Batch, Phase
from nscl.methods.regularization.ewc import EWC, EWCOptions
from nscl.methods.regularization.fisher import fisher
from nscl.methods.regularization.importance_pass import pass_batches
from nscl.training.config.schema import ConfigError
from nscl.training.process.device import Ranks
from nscl.training.setup import Setup
from tests.methods.regularization.quadratics import descend, point
from tests.runs import small

W = "backbone.w"


def held(*tasks: tuple[float, float], **options: Any) -> EWC:
    """A weight with Fisher information F at w*, task by task."""
    method = EWC(point(), EWCOptions(strength=1.0, **options))
    for information, weight in tasks:
        found, at = ({W: torch.tensor([v], dtype=torch.float64)} for v in (information, weight))
        if options.get("form") == "online":
            method.penalty.move(found, at, keep=options.get("gamma", 1.0))
        else:
            method.penalty.add(found, at)
    return method


def test_two_quadratics_meet_at_1() -> None:
    """½(w − 3)² + ½·1·2·w²: row 8 of the sanity table."""
    method = held((2.0, 0.0))
    w = method.shared_parameters()[W]
    descend(method, lambda: 0.5 * (w - 3.0).square().sum(), steps=300, task=1)
    assert w.item() == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize(("form", "expected"), [("separate", 1.5), ("online", 2.0)])
def test_separate_and_online_rest_in_different_places(form: str, expected: float) -> None:
    """F = 1 at 0 and F = 3 at 2: row 9 of the sanity table."""
    method = held((1.0, 0.0), (3.0, 2.0), form=form)
    w = method.shared_parameters()[W]
    descend(method, lambda: 0.0 * w.sum(), steps=300, task=2)
    assert w.item() == pytest.approx(expected, abs=1e-9)


def test_gamma_lets_old_tasks_fade() -> None:
    method = held((1.0, 0.0), (3.0, 2.0), (5.0, 1.0), form="online", gamma=0.5)
    assert method.penalty.importance[W].item() == 0.25 * 1 + 0.5 * 3 + 5


def _shaken(method: EWC) -> dict[str, Tensor]:
    """Move all weights, and copy them."""
    shared = method.shared_parameters()
    with torch.no_grad():
        for p in shared.values():
            p.add_(0.05 * torch.randn_like(p))
    return {name: p.detach().clone() for name, p in shared.items()}


@pytest.mark.parametrize("form", ["separate", "online"])
def test_gradient_equals_the_penalties_written_out(form: str, tmp_path: Path) -> None:
    """Three real tasks on digits in float64; autograd through the published formula."""
    options = {"form": form, "estimator": "true", "samples": 20, "strength": 7.0}
    config = small("ewc", tmp_path, data={"first": 5}, options=options)
    built = Setup.build(config, Ranks())
    method, model = built.method, built.model.double()
    assert isinstance(method, EWC)
    loaders = built.loaders
    method.lab.loader = lambda *a, **k: [(x.double(), y) for x, y in loaders(*a, **k)]  # type: ignore[assignment, return-value]
    kept = []
    for task in range(3):
        weights = _shaken(method)
        method.remember(task)
        batches = pass_batches(method.lab, built.stream[task].train, task, method.choices)
        shared = method.shared_parameters()
        found = fisher(model, batches, task=task, parameters=shared, estimator="true")
        kept.append((found, weights))
    _shaken(method)
    shared = method.shared_parameters()
    anchor = kept[-1][1]
    loss = sum(
        (f[n] * (p - (w if form == "separate" else anchor)[n]) ** 2).sum()
        for f, w in kept
        for n, p in shared.items()
    )
    expected = torch.autograd.grad(3.5 * loss, list(shared.values()))  # type: ignore[operator]
    method.after_backward(Batch(torch.zeros(1), torch.zeros(1), 3), Phase())
    for p, gradient in zip(shared.values(), expected, strict=True):
        torch.testing.assert_close(p.grad, gradient, rtol=1e-9, atol=1e-12)
    assert method.metrics()["penalty"] == pytest.approx(3.5 * float(loss.detach()))  # type: ignore[union-attr]


def test_settings_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    for options, message in (
        ({"estimator": "true", "unit": "batch"}, "estimator true needs unit sample"),
        ({"estimator": "weighted", "unit": "batch_scaled"}, "estimator weighted needs unit sample"),
        ({"gamma": 0.9}, "gamma belongs to form online"),
        ({"strength": 0.0}, "greater than 0"),
        ({"estimator": "guess"}, "empirical"),
    ):
        with pytest.raises(ConfigError, match=message):
            small("ewc", tmp_path, options=options)


@pytest.mark.parametrize("unit", ["batch", "batch_scaled"])
def test_batches_of_the_surrogates_are_those_of_training(unit: str, tmp_path: Path) -> None:
    """B·mean² of a batch of 32 is 32 times mean², up to the last, smaller batch."""
    options = {"unit": unit, "estimator": "empirical", "samples": 64}
    built = Setup.build(small("ewc", tmp_path, options=options), Ranks())
    method = built.method
    assert isinstance(method, EWC)
    method.remember(0)
    found = []
    for images, labels in pass_batches(
        method.lab, built.stream[0].train, 0, method.choices, unit=method.choices.unit
    ):
        assert len(labels) == 32
        loss = torch.nn.functional.cross_entropy(built.model.eval()(images, 0), labels)
        shared = list(method.shared_parameters().values())
        found.append(torch.autograd.grad(loss, shared))
    for index, omega in enumerate(method.penalty.importance.values()):
        slow = torch.stack([gradients[index] ** 2 for gradients in found]).mean(0)
        factor = 32.0 if unit == "batch_scaled" else 1.0
        torch.testing.assert_close(omega, factor * slow, rtol=1e-4, atol=1e-9)
