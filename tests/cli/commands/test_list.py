"""``nscl list``: names, what each of them is, whatever the width of the screen."""

import pytest

from nscl.cli.app import call
from nscl.methods import METHODS


@pytest.mark.parametrize("what", ["methods", "benchmarks", "models", "presets", "scenarios"])
def test_lists(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["list", what]) == 0
    output = capsys.readouterr().out
    expected = {"methods": "adam-nscl", "benchmarks": "split-digits-5", "models": "resnet18",
                "presets": "official",
                "scenarios": "one growing head over all classes seen so far"}  # fmt: skip
    assert expected[what] in output


def test_the_list_of_methods_says_what_each_stores_needs_and_whose_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # of no terminal: a line for each method all the same
    assert call(["list", "methods"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    names = ["method", "stores", "needs", "what it does", "paper"]
    places = [head.index(name) for name in names]
    assert places == sorted(places)
    cells = {}
    for line in lines:
        ends = [*places[1:], len(line)]
        cells[line.split()[0]] = [line[a:b].strip() for a, b in zip(places, ends, strict=True)]
    assert list(cells) == list(METHODS)
    for info in METHODS.values():
        found = [info.name, info.stores, info.needs, info.description, info.paper]
        assert cells[info.name] == found
        assert all(found)
    assert cells["gem"][1:3] == ["data", "labels"]
    assert cells["gd-wild"][2] == "labels, external images"
    assert "CVPR 2021" in cells["adam-nscl"][-1]
