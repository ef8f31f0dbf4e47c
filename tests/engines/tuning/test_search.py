"""Searches on known landscapes: what is tried, in which order, and what is chosen."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nscl.engines.tuning.search import Axis, Point, Score, Search, choose, to_repeat

RATES = Axis("optim.later_lr", (2e-4, 6e-4, 2e-3), is_rate=True)
STRENGTHS = Axis("method.strength", (1.0, 3.0, 10.0, 30.0, 100.0))


def hill(*top: float) -> Callable[[Point], Score]:
    """The nearer to the top in every direction, the better."""
    return lambda point: Score(
        90 - sum(abs(math.log10(p / t)) for p, t in zip(point, top, strict=True)), 0.0
    )


def carried_out(search: Search, score: Callable[[Point], Score]) -> dict[Point, Score]:
    seen: dict[Point, Score] = {}
    while wanted := search.next_points(seen):
        assert not seen.keys() & set(wanted)
        seen |= {point: score(point) for point in wanted}
    return seen


def test_rates_come_first_and_then_strengths_around_the_best() -> None:
    seen = list(carried_out(Search((RATES, STRENGTHS), 7), hill(2e-3, 30.0)))
    assert seen[:3] == [(2e-4, 10.0), (6e-4, 10.0), (2e-3, 10.0)]
    assert seen[3:] == [(2e-3, 3.0), (2e-3, 30.0), (2e-3, 100.0)]


def test_an_end_of_the_grid_that_wins_is_passed_in_its_proportion() -> None:
    seen = carried_out(Search((STRENGTHS,), 7), hill(1000.0))
    assert list(seen)[-2:] == [(pytest.approx(10000 / 9),), (pytest.approx(1e5 / 27),)]
    seen = carried_out(Search((STRENGTHS,), 5), hill(0.01))
    assert [p[0] for p in seen] == pytest.approx([10.0, 3.0, 30.0, 1.0, 1 / 3])


def test_what_a_method_does_not_take_is_not_tried() -> None:
    search = Search((Axis("threshold", (0.8, 0.9, 0.97)),), 9, lambda point: point[0] < 1)
    assert carried_out(search, hill(2.0)).keys() == {(0.8,), (0.9,), (0.97,)}
    at_zero = Search((Axis("margin", (0.0, 0.5)),), 9)
    assert carried_out(at_zero, lambda point: Score(-point[0], 0)).keys() == {(0.0,), (0.5,)}


def test_trials_that_break_down_are_the_worst() -> None:
    search = Search((STRENGTHS,), 7)
    seen = carried_out(search, lambda p: Score() if p[0] > 3 else Score(50, 0))
    assert max(seen) == (30.0,)
    assert choose({point: [score] for point, score in seen.items()}) in {(1.0,), (3.0,), (1 / 3,)}
    assert choose({(1.0,): [Score()]}) is None


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(1e-5, 1e3), min_size=3, max_size=3), st.integers(1, 12))
def test_no_search_spends_more_than_its_budget_or_forgets_where_it_was(
    top: list[float], budget: int
) -> None:
    search = Search((RATES, STRENGTHS, Axis("method.kd", (1.0, 3.0, 10.0))), budget)
    seen = carried_out(search, hill(*top))
    assert 1 <= len(seen) <= budget
    half = dict(list(seen.items())[: len(seen) // 2])
    again = dict(half)
    while wanted := search.next_points(again):  # from a record of half of the trials
        again |= {point: hill(*top)(point) for point in wanted}
    assert again == seen


def test_a_generous_budget_ends_at_the_top_of_a_hill() -> None:
    axes = (RATES, STRENGTHS, Axis("method.kd", (1.0, 3.0, 10.0)))
    seen = carried_out(Search(axes, 20), hill(6e-4, 100.0, 10.0))
    assert to_repeat(seen)[0] == (6e-4, 100.0, 10.0)


def test_only_points_with_all_seeds_are_chosen() -> None:
    twice = {(1.0,): [Score(50, -9), Score(50, -9)], (2.0,): [Score(60, 0)]}
    assert choose(twice) == (1.0,)
