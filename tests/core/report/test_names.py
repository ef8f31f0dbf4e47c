"""Many names in few words: cut short, or as patterns."""

import pytest

from nscl.core.report.names import common, in_short, listed, one_name, pattern_of

LAYERS = [f"layer.{i}.q" for i in range(12)]


def test_a_name_is_a_pattern_by_whole_numbers_only() -> None:
    assert pattern_of("layer1.0.conv2") == "layer1.*.conv2"
    assert pattern_of("model.layers.31.mlp.fc1") == "model.layers.*.mlp.fc1"


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["a.0", "a.1"], "a.0, a.1"),
        ([*LAYERS, "head"], "layer.*.q (12 layers), head"),
        ([f"part{i}" for i in range(6)], "part0, part1, part2, part3 and 2 more"),
    ],
)
def test_few_names_stay_and_many_become_patterns(names: list[str], shown: str) -> None:
    assert in_short(names) == shown


def test_lists_are_cut_after_four_and_words_come_once() -> None:
    assert listed(list("abcd")) == "a, b, c, d"
    assert listed(list("abcdef")) == "a, b, c, d and 2 more"
    assert common(["ewc", "null space", "ewc"]) == "ewc, null space"
    assert one_name("layer.*.q", ["layer.3.q"]) == "layer.3.q"
