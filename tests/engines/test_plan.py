"""From options to runs: methods, seeds and grids."""

import pytest

from nscl.engines.plan import (
    choose_methods,
    make_variant,
    parse_axes,
    parse_seeds,
    pick_names,
)
from nscl.engines.plan_file import grid_points
from nscl.errors import NsclError
from nscl.methods import METHODS


def test_the_longest_name_wins() -> None:
    known = ["a", "b", "a, b", "a, b, c"]
    assert pick_names("a,b", known) == ["a, b"]
    assert pick_names("b,a", known) == ["b", "a"]
    assert pick_names(" a,b , c,gem,,gem", known) == ["a, b, c", "gem"]


def test_all_leaves_out_methods_that_are_not_for_the_stream() -> None:
    names, unfit = choose_methods("all", "split-digits-5")
    assert names == list(METHODS)
    assert not unfit
    names, unfit = choose_methods("all", "permuted-digits")
    assert "lwf" in unfit
    assert set(names) | set(unfit) == set(METHODS)
    _, unfit = choose_methods("all", "clinc150-10")
    assert unfit == ["muc-mas", "gd-wild", "instaparam"]  # they need pictures
    assert choose_methods("gem, finetune,gem", "split-digits-5")[0] == ["gem", "finetune"]


@pytest.mark.parametrize("text", ["0", "", "a", "-1,2", "1.5"])
def test_seeds_that_are_none(text: str) -> None:
    with pytest.raises(NsclError, match="seeds"):
        parse_seeds(text)


def test_axes_take_lists_words_and_numbers() -> None:
    axes = parse_axes(["optim.milestones=[1,2],[3]", "method.literal=true,false", "method.a=1e2"])
    assert axes == {
        "optim.milestones": [[1, 2], [3]],
        "method.literal": [True, False],
        "method.a": [100.0],
    }
    for text in ("method.a", "=3", "method.a="):
        with pytest.raises(NsclError, match="--set needs"):
            parse_axes([text])
    assert grid_points({}) == [{}]


@pytest.mark.parametrize(
    "name", ["seed", "method", "benchmark", "out", "threads", "data-dir", "track"]
)
def test_what_names_a_run_is_not_varied(name: str) -> None:
    with pytest.raises(NsclError, match="not an option to vary"):
        make_variant("finetune", {name: 1})
