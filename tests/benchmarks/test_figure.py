"""A figure's ratio points the way its promise does."""

import pytest
from benchmarks.figure import Figure, at_least, at_most


def test_at_most_is_ours_over_the_reference() -> None:
    figure = Figure("a", "", ours=3.0, reference=2.0, unit="ms", target=at_most(1.4))
    assert figure.ratio == 1.5
    assert figure.met is False
    assert str(figure.target) == "≤ 1.4"


def test_at_least_is_the_reference_over_ours() -> None:
    figure = Figure("a", "", ours=2.0, reference=8.0, unit="ms", target=at_least(4))
    assert figure.ratio == 4.0
    assert figure.met is True


def test_nothing_is_promised_without_a_target() -> None:
    figure = Figure("a", "", ours=2.0, reference=8.0, unit="ms")
    assert (figure.ratio, figure.met) == (0.25, None)


@pytest.mark.parametrize(("ours", "met"), [(0.0, True), (1.0, False)])
def test_none_at_all_can_be_promised(ours: float, met: bool) -> None:
    assert Figure("a", "", ours, reference=5.0, unit="MiB", target=at_most(0)).met is met


def test_plain_data_say_it_all() -> None:
    found = Figure("a", "b", 1.0, 4.0, "s", at_least(2), "n").to_dict()
    assert found == {
        "name": "a", "title": "b", "ours": 1.0, "reference": 4.0, "unit": "s",
        "target": "≥ 2", "note": "n", "ratio": 4.0, "met": True,
    }  # fmt: skip
