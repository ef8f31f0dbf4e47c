"""Which directions each rule frees, on spectra small enough to do by hand."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nscl import Energy, Ratio, Ridge, Tolerance
from nscl.core.projection.rules import RULES, rule_from_dict, rule_to_dict

EVERY = [Ratio(10.0), Energy(0.05), Tolerance(1e-6), Ridge(10.0)]
SPECTRUM = torch.tensor([0.01, 1.0, 4.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Ratio(10.0), [1, 0, 0]),
        (Ratio(100.0), [1, 1, 0]),  # ≤, as the text and the code have it
        (Ratio(200.0), [1, 1, 0]),
        (Ratio(400.0), [1, 1, 1]),
        (Energy(0.002), [1, 0, 0]),
        (Energy(0.001), [0, 0, 0]),
        (Energy(0.21), [1, 1, 0]),
        (Tolerance(0.0025), [1, 0, 0]),
        (Tolerance(0.3), [1, 1, 0]),
    ],
)
def test_by_hand(rule: Any, expected: list[int]) -> None:
    assert rule(SPECTRUM).tolist() == expected


def test_ridge_is_the_formula() -> None:
    mean = SPECTRUM.mean()
    for tasks in (1, 3):
        expected = 1 / (1 + tasks * SPECTRUM / (2.0 * mean))
        assert torch.allclose(Ridge(2.0)(SPECTRUM, tasks=tasks), expected, atol=1e-15)


def test_ridge_is_not_diluted_by_later_tasks_that_repeat_nothing() -> None:
    """Two tasks that use different directions: each is held as well as when it was alone."""
    alone = Ridge(1.0)(torch.tensor([0.0, 0.0, 2.0]), tasks=1)
    both = Ridge(1.0)(torch.tensor([0.0, 1.0, 1.0]), tasks=2)
    assert both[2] <= alone[2] + 1e-7


@pytest.mark.parametrize("rule", EVERY)
def test_exact_zeros_are_free_whatever_the_rule(rule: Any) -> None:
    weights = rule(torch.tensor([0.0, 1.0, 5.0, 0.0, 4.0], dtype=torch.float64))
    assert weights[0] == weights[3] == 1.0
    assert ((weights >= 0) & (weights <= 1)).all()


@pytest.mark.parametrize("rule", EVERY)
def test_silence_frees_everything(rule: Any) -> None:
    assert rule(torch.zeros(4, dtype=torch.float64)).tolist() == [1.0] * 4


@pytest.mark.parametrize("rule", EVERY)
@given(
    values=st.lists(st.floats(1e-8, 1e8), min_size=1, max_size=12, unique=True),
    scale=st.floats(1e-6, 1e6),
    order=st.randoms(),
)
def test_scale_and_order_do_not_matter(rule: Any, values: list[float], scale: float, order) -> None:
    eigenvalues = torch.tensor(values, dtype=torch.float64)
    shuffled = list(range(len(values)))
    order.shuffle(shuffled)
    weights = rule(eigenvalues)
    assert torch.allclose(rule(eigenvalues[shuffled]), weights[shuffled], atol=1e-12)
    power = 2.0 ** round(math.log2(scale))  # a power of two, so that no comparison is rounded
    assert torch.allclose(rule(eigenvalues * power), weights, atol=1e-12)


@pytest.mark.parametrize("rule", EVERY)
@given(values=st.lists(st.floats(1e-8, 1e8), min_size=2, max_size=12))
def test_less_energy_is_never_held_more(rule: Any, values: list[float]) -> None:
    weights = rule(torch.tensor(sorted(values), dtype=torch.float64))
    assert (weights.diff() <= 1e-15).all()


@given(values=st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=12), share=st.floats(0.01, 0.99))
def test_energy_frees_the_largest_set_within_its_share(values: list[float], share: float) -> None:
    eigenvalues = torch.tensor(sorted(values), dtype=torch.float64)
    free = int(Energy(share)(eigenvalues).sum())
    total = eigenvalues.sum()
    assert eigenvalues[:free].sum() <= share * total * (1 + 1e-12)
    assert free == len(values) or eigenvalues[: free + 1].sum() >= share * total * (1 - 1e-12)


@pytest.mark.parametrize("rule", EVERY)
def test_groups_are_independent(rule: Any) -> None:
    first = torch.rand(6, dtype=torch.float64)
    second = 1e5 * torch.rand(6, dtype=torch.float64)
    both = rule(torch.stack([first, second]))
    assert torch.equal(both, torch.stack([rule(first), rule(second)]))


def test_the_literal_ratio_compares_with_the_very_smallest() -> None:
    spectrum = torch.tensor([1e-16, 1e-3, 1.0])
    assert Ratio(10.0, literal=True)(spectrum).tolist() == [1, 0, 0]
    assert Ratio(10.0)(spectrum).tolist() == [1, 1, 0]
    assert Ratio(10.0, literal=True)(torch.tensor([1.0, 10.0, 11.0])).tolist() == [1, 1, 0]  # ≤


@pytest.mark.parametrize("a", [0, -1.0, math.nan, math.inf])
def test_a_must_be_positive(a: float) -> None:
    with pytest.raises(ValueError, match="Ratio: a must be a positive number"):
        Ratio(a)
    with pytest.raises(ValueError, match="Ridge: alpha must be a positive number"):
        Ridge(a)


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, math.nan])
def test_shares_lie_between_nothing_and_all(share: float) -> None:
    with pytest.raises(ValueError, match="Energy: share must lie strictly between 0 and 1"):
        Energy(share)
    with pytest.raises(ValueError, match="Tolerance: rtol must lie strictly between 0 and 1"):
        Tolerance(share)


@pytest.mark.parametrize("rule", [*(make() for make in RULES.values()), Ratio(3.0, True)])
def test_rules_survive_being_written_down(rule: Any) -> None:
    assert rule_from_dict(rule_to_dict(rule)) == rule


def test_an_unknown_rule_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'Magic'; known: Ratio, Energy, Tolerance, Ridge, P"):
        rule_from_dict({"name": "Magic"})
    assert list(RULES) == ["Ratio", "Energy", "Tolerance", "Ridge", "Penalty", "Budget"]
