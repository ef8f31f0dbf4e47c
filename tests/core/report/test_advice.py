"""Remarks that are true for the layers they name: of matrices, of embeddings, of every rule."""

from typing import Any

import pytest

from nscl.core.report.advice import advise
from nscl.core.report.layers import LayerReport


def layer(free: float, how: str = "null space", **options: Any) -> LayerReport:
    return LayerReport("a", "Linear", 1000, free, 0.02, 50.0, how, **options)


def shrunk(free: float) -> LayerReport:
    return layer(1000 * free, "both factors", dimensions=5000, free_dimensions=5000 * free)


def notes(*layers: LayerReport, rule: str | None = "Ratio") -> list[str]:
    return list(advise(layers, {"name": rule} if rule else None))


@pytest.mark.parametrize(
    ("rule", "knob"),
    [
        ("Ratio", "a larger `a` in Ratio"),
        ("Energy", "a larger `share` in Energy"),
        ("Tolerance", "a larger `rtol` in Tolerance"),
        ("Ridge", "a larger `alpha` in Ridge"),
        (None, "a more generous rule or projector"),
    ],
)
def test_each_rule_has_a_number_of_its_own(rule: str | None, knob: str) -> None:
    none, few = notes(layer(0), rule=rule), notes(layer(19), rule=rule)
    assert len(none) == len(few) == 1
    assert none[0].startswith("0 % free: a:")
    assert none[0].endswith(f"{knob} frees some")
    assert few[0].startswith("less than 2 % free: a:")
    assert few[0].endswith(f"{knob} frees more")
    assert notes(layer(20), rule=rule) == []


def test_a_soft_rule_lets_everything_move_a_little() -> None:
    assert "can hardly move" in notes(layer(0.1), rule="Ridge")[0]
    assert "cannot move at all" in notes(layer(0), rule="Ratio")[0]


@pytest.mark.parametrize(
    ("rule", "knob"),
    [("Penalty", "a smaller `strength` in Penalty"), ("Budget", "a larger `drift` in Budget")],
)
def test_proximal_rules_are_judged_by_their_dimensions(rule: str, knob: str) -> None:
    (note,) = notes(shrunk(0.019), rule=rule)
    assert note.startswith("less than 2 % free: a:")
    assert note.endswith(f"{knob} shrinks it less")
    assert notes(shrunk(0.02), rule=rule) == []
    wide = layer(0.1, "both factors", dimensions=5000, free_dimensions=4000.0)
    assert notes(wide, rule=rule) == []  # hardly an input direction, and most of its dimensions
    assert notes(shrunk(1.0), rule=rule)[0].startswith("100 % free: a: nothing is held here")


def test_no_number_of_a_rule_frees_a_token() -> None:
    for free, words in ((0, "no token free: a:"), (19, "less than 2 % of the tokens free: a:")):
        (note,) = notes(layer(free, tokens=True))
        assert note.startswith(words)
        assert "larger" not in note
    assert notes(layer(20, tokens=True)) == notes(layer(1000, tokens=True)) == []


def test_what_no_projection_holds_needs_no_remark() -> None:
    assert notes(layer(0, "ewc"), layer(1000, "left free"), layer(0, "frozen")) == []


def test_many_names_become_patterns() -> None:
    layers = [
        LayerReport(f"layer.{i}.q", "Linear", 10, 0, 0.0, 1.0, "null space") for i in range(50)
    ]
    assert notes(*layers)[0].startswith("0 % free: layer.*.q (50 layers): the old data")
