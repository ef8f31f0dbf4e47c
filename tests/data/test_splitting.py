import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nscl.data.errors import DataError
from nscl.data.splitting import assign_classes, ordered, task_counts


@settings(deadline=None)
@given(st.integers(1, 60), st.data(), st.sampled_from(["natural", "random"]), st.integers(0, 9))
def test_every_class_is_in_exactly_one_task(
    classes: int, data: st.DataObject, order: str, seed: int
) -> None:
    tasks = data.draw(st.sampled_from(task_counts(classes)))
    groups = assign_classes(classes, tasks, order=order, seed=seed)  # type: ignore[arg-type]
    assert len(groups) == tasks
    assert {len(group) for group in groups} == {classes // tasks}
    assert sorted(label for group in groups for label in group) == list(range(classes))


def test_natural_order_is_the_papers() -> None:
    assert assign_classes(100, 10)[1] == tuple(range(10, 20))


def test_random_order_is_the_seeds() -> None:
    assert ordered(100, order="random", seed=1) == ordered(100, order="random", seed=1)
    assert ordered(100, order="random", seed=1) != ordered(100, order="random", seed=2)


def test_indivisible_says_which_numbers_divide() -> None:
    with pytest.raises(DataError, match=r"10 classes cannot .* 3 equal tasks; .* 1, 2, 5, 10$"):
        assign_classes(10, 3)
    with pytest.raises(DataError, match="0 equal tasks"):
        assign_classes(10, 0)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(DataError, match="must not be negative, but is -1"):
        ordered(3, order="random", seed=-1)


def test_unknown_order() -> None:
    with pytest.raises(DataError, match="'natural' or 'random'"):
        ordered(3, order="sorted")  # type: ignore[arg-type]
