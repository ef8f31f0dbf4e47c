"""GD-WILD's formulas: the ensemble of two teachers, class weights, the choice of images."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nscl.methods.distillation.gd_wild.losses import (
    choose_external,
    class_weights,
    ensemble_target,
    unsureness,
    weight_table,
)


def test_the_values_of_rows_24_and_25() -> None:
    p = torch.tensor([[0.7, 0.3]], dtype=torch.float64)
    c = torch.tensor([[0.6, 0.4]], dtype=torch.float64)
    assert ensemble_target(p, c)[0].tolist() == pytest.approx([0.7, 0.1, 0.12, 0.08])
    sure = torch.tensor([[0.9, 0.1], [0.5, 0.5]], dtype=torch.float64).log()
    assert unsureness(sure).tolist() == pytest.approx([0.510826, 0], abs=1e-6)
    assert class_weights(torch.tensor([20.0, 500.0])).tolist() == pytest.approx([13, 0.52])


@given(seed=st.integers(0, 100), old=st.integers(1, 5), new=st.integers(1, 5))
def test_the_ensemble_is_a_distribution_that_keeps_the_first_choice(
    seed: int, old: int, new: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    p = torch.randn((4, old), generator=generator, dtype=torch.float64).mul(4).softmax(1)
    c = torch.randn((4, new), generator=generator, dtype=torch.float64).mul(4).softmax(1)
    q = ensemble_target(p, c)
    assert torch.allclose(q.sum(1), torch.ones(4, dtype=torch.float64))
    best = p.argmax(1)
    assert torch.equal(q.gather(1, best[:, None]), p.gather(1, best[:, None]))
    assert (q >= 0).all()


def test_weights_by_set_of_classes() -> None:
    table = weight_table(torch.tensor([10.0, 30.0, 100.0, 300.0]), old=2)
    assert table[0].tolist() == pytest.approx([11, 440 / 120, 1.1, 440 / 1200, 1])
    assert table[1].tolist() == pytest.approx([2, 2 / 3, 1, 1, 1])
    assert table[2].tolist() == pytest.approx([1, 1, 2, 2 / 3, 1])


@given(seed=st.integers(0, 100), count=st.integers(1, 60), classes=st.integers(1, 5))
def test_seventy_thirty(seed: int, count: int, classes: int) -> None:
    torch.manual_seed(seed)
    scores = torch.randn(50, classes)
    rows = choose_external(50, count, scores=scores)
    wanted = min(count, 50)
    assert len(rows) == len(rows.unique()) == wanted
    asked = wanted - round(0.7 * wanted)
    each = -(-asked // classes)
    best = {int(r) for k in range(classes) for r in scores[:, k].argsort(descending=True)[:each]}
    assert len(best & set(rows.tolist())) >= min(asked, len(best))
    if asked >= classes and asked % classes == 0:
        assert best <= set(rows.tolist())


def test_without_an_old_network_all_are_random() -> None:
    rows = choose_external(1000, 10)
    assert len(rows.unique()) == 10
    assert rows.tolist() != choose_external(1000, 10).tolist()
