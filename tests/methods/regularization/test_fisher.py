"""The Fisher information against a loop over samples and labels, and values by hand."""

import math

import pytest
import torch
from torch import Tensor

from nscl.methods.regularization import per_sample_grads as sample_gradients
from nscl.methods.regularization.fisher import Estimator, fisher, likelihood_directions
from nscl.models import MultiHead
from tests.methods.regularization.quadratics import Scale, data, network, pictures

Batches = list[tuple[Tensor, Tensor]]


def slow_fisher(model: MultiHead, batches: Batches, estimator: Estimator) -> dict[str, Tensor]:
    """Sample by sample, label by label, with nothing but autograd."""
    shared, total = dict(model.backbone_parameters()), 0
    sums = {name: torch.zeros_like(p) for name, p in shared.items()}
    model.eval()
    for images, labels in batches:
        for image, label in zip(images, labels, strict=True):
            log_p = model(image[None], 1).log_softmax(1)[0]
            p = log_p.detach().exp()
            asked = {"true": range(len(p)), "argmax": [int(p.argmax())]}
            for y in asked.get(estimator, [int(label)]):
                weight = float(p[y]) if estimator in ("true", "weighted") else 1.0
                found = torch.autograd.grad(log_p[y], list(shared.values()), retain_graph=True)
                for name, gradient in zip(shared, found, strict=True):
                    sums[name] += weight * gradient**2
            total += 1
    model.train()
    return {name: value / total for name, value in sums.items()}


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [("true", 0.1875), ("argmax", 0.0625), ("empirical", 0.5625), ("weighted", 0.5625 / 4)],
)
def test_logistic_regression_at_ln_3(estimator: Estimator, expected: float) -> None:
    """p = ¾: row 6 of the sanity table."""
    model = Scale(math.log(3.0), logistic=True)
    shared = dict(model.named_parameters())
    found = fisher(model, data(1.0, label=0), task=0, parameters=shared, estimator=estimator)
    assert found["w"].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("estimator", ["true", "argmax", "empirical", "weighted"])
@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_equals_a_loop_over_samples(
    estimator: Estimator, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batches = network(), pictures(5, 2)
    shared = dict(model.backbone_parameters())
    held = sum(p.nbytes for p in shared.values())
    monkeypatch.setitem(sample_gradients.CHUNK_BYTES, "cpu", chunk * held)
    found = fisher(model, batches, task=1, parameters=shared, estimator=estimator)
    expected = slow_fisher(model, batches, estimator)
    assert set(found) == set(expected)
    assert any("norms" in name for name in found)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-10, atol=1e-14)
        assert value.max() > 0


@pytest.mark.parametrize("estimator", ["sketched", "sampled"])
def test_random_estimators_are_unbiased(estimator: Estimator) -> None:
    """The mean of v vᵀ is the Fisher of the logits; whatever lies below is linear in it."""
    logits = torch.tensor([[0.3, -1.0, 2.0, 0.0]], dtype=torch.float64)
    (v,) = likelihood_directions(logits.expand(200_000, 4), torch.zeros(200_000), estimator)
    p = logits[0].softmax(0)
    expected = torch.diag(p) - torch.outer(p, p)
    torch.testing.assert_close(v.T @ v / len(v), expected, rtol=0, atol=4e-3)
    exact = list(likelihood_directions(logits, torch.zeros(1), "true"))
    torch.testing.assert_close(sum(u.T @ u for u in exact), expected, rtol=0, atol=1e-12)


def test_a_confident_network_is_better_sketched_than_sampled() -> None:
    """The reason for the default: errors over seeds, at equal cost."""
    p = torch.tensor([0.98, 0.01, 0.01], dtype=torch.float64)
    logits, truth = p.log().expand(50, 3), p * (1 - p)
    errors = {}
    for estimator in ("sketched", "sampled"):
        runs = [next(likelihood_directions(logits, torch.zeros(50), estimator)) for _ in range(200)]
        found = torch.stack([(v**2).mean(0) for v in runs])
        errors[estimator] = float(((found - truth) / truth).square().mean().sqrt())
    assert errors["sketched"] < errors["sampled"] / 2


@pytest.mark.parametrize("estimator", ["sketched", "sampled"])
def test_scaled_batches_of_random_estimators_are_unbiased_too(estimator: Estimator) -> None:
    """Their gradients have mean 0, so B·mean² has the mean of the squares."""
    logits = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    (v,) = likelihood_directions(logits.expand(800_000, 3), torch.zeros(800_000), estimator)
    means = v.view(-1, 8, 3).mean(1)
    p = logits.softmax(0)
    torch.testing.assert_close(8 * (means**2).mean(0), p * (1 - p), rtol=0.02, atol=0)
