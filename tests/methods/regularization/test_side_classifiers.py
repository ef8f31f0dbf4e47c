"""Side classifiers: how far apart they are, how their importances are put together."""

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nscl.methods.regularization.side_classifiers import (
    SideClassifiers,
    combined,
    discrepancy,
    stability,
)


def test_the_values_of_row_11() -> None:
    opposite = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]], dtype=torch.float64)
    assert discrepancy(opposite).item() == 1
    one = torch.ones(1, dtype=torch.float64)
    equal = stability(one, torch.ones(3, 1, dtype=torch.float64))
    spread = stability(one, torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64))
    assert equal.item() == pytest.approx(2.718282, abs=1e-6)
    assert spread.item() == pytest.approx(1.201419, abs=1e-6)


@given(
    seed=st.integers(0, 100),
    samples=st.integers(1, 4),
    heads=st.integers(2, 4),
    classes=st.integers(2, 5),
)
def test_discrepancy_by_pairs_and_its_bound(
    seed: int, samples: int, heads: int, classes: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    shape = (samples, heads, classes)
    p = (5 * torch.randn(shape, generator=generator, dtype=torch.float64)).softmax(-1)
    truth = sum(
        abs(float(p[n, k, c] - p[n, l, c])) / samples / classes
        for k, l in combinations(range(heads), 2)  # noqa: E741
        for n in range(samples)
        for c in range(classes)
    )
    pairs = heads * (heads - 1) / 2
    assert float(discrepancy(p)) == pytest.approx(truth, abs=1e-12)
    assert float(discrepancy(p)) <= pairs * 2 / classes + 1e-12


def test_importances_together() -> None:
    main = {"w": torch.tensor([1.0, 1.0, 0.0, 0.0])}
    sides = [{"w": torch.tensor([1.0, n, 0.0, 3.0])} for n in (0.0, 1.0, 2.0)]
    found = combined(main, sides, None)["w"]
    # Agreement counts e times, spread less; what is dead on all stays free, nothing is NaN.
    assert found.tolist() == pytest.approx([1 + 2.718282, 1 + 1.201419, 0, 0], abs=1e-5)
    assert combined(main, sides, 1.4)["w"].tolist() == pytest.approx([2.4, 2.4, 0, 4.2])


def test_side_classifiers_are_heads_of_their_own() -> None:
    side = SideClassifiers(torch.nn.Linear(5, 2).double(), 3)
    features = torch.randn(4, 5, dtype=torch.float64)
    labels = torch.tensor([0, 1, 1, 0])
    logits = side(features)
    assert logits.shape == (4, 3, 2)
    alone = [
        features @ side.weight[2 * k : 2 * k + 2].T + side.bias[2 * k : 2 * k + 2] for k in range(3)
    ]
    assert torch.allclose(logits, torch.stack(alone, 1))
    entropy = [torch.nn.functional.cross_entropy(z, labels) for z in alone]
    assert side.loss(logits, labels).item() == pytest.approx(sum(z.item() for z in entropy))
    hits = [(z.argmax(1) == labels).double().mean().item() for z in alone]
    assert side.accuracy(logits, labels).item() == pytest.approx(100 * sum(hits) / 3)


def test_each_classifier_is_a_function_of_the_backbones_parameters_alone() -> None:
    backbone = torch.nn.Linear(3, 5).double()
    side = SideClassifiers(torch.nn.Linear(5, 2).double(), 3)
    x = torch.randn(4, 3, dtype=torch.float64)
    found = [output({}, x) for output in side.outputs(backbone)]
    assert torch.allclose(torch.stack(found, 1), side(backbone(x)))
    theta = {"backbone.weight": backbone.weight * 2, "heads.0.weight": torch.ones(1)}
    doubled = torch.nn.functional.linear(x, 2 * backbone.weight, backbone.bias)
    (first, *_) = side.outputs(backbone)
    assert torch.allclose(first(theta, x), side(doubled)[:, 0])
    first({}, x).sum().backward()
    assert side.weight.grad is None  # importances are of the network
