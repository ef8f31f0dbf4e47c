"""Reports: data first, readable when printed, pointing at what deserves attention."""

import json

import pytest

from nscl.core.report import (
    Forgetting,
    LayerForgetting,
    LayerReport,
    Report,
    Shift,
    directions,
)


def layer(name: str, free: float, how: str = "null space", features: int = 10) -> LayerReport:
    return LayerReport(name, "Linear", features, free, 0.02, 50.0, how)


def report(*layers: LayerReport, optimizers: tuple[str, ...] = ("Adam",), tasks: int = 1) -> Report:
    statistics = (Shift("bn", 0.5), Shift("still", 0.0))
    return Report(layers, statistics, optimizers, tasks, {"covariances": 8})


def test_the_total_is_over_remembered_layers() -> None:
    found = report(layer("a", 4), layer("b", 2.5), layer("c", 10, "excluded")).total
    assert (found.name, found.kind, found.features, found.free) == ("total", "2 layers", 20, 6.5)
    assert found.share == pytest.approx(0.02)
    assert found.condition == 50
    assert report().total.protected_by == "nothing yet"


def test_layers_that_cannot_learn_or_are_not_held_are_pointed_at() -> None:
    told = report(layer("stuck", 0), layer("loose", 10), layer("fine", 5)).notes
    assert len(told) == 2
    assert told[0].startswith("0 % free: stuck: the old data use every direction")
    assert told[1].startswith("100 % free: loose: nothing is held here")
    assert report(layer("fine", 5)).notes == ()
    assert report(layer("x", 10, "free until remembered")).notes == ()


def test_many_names_are_cut_short() -> None:
    told = report(*(layer(f"layer{i}", 0) for i in range(6))).notes[0]
    assert "layer0, layer1, layer2, layer3 and 2 more" in told


def test_training_unprotected_is_pointed_at() -> None:
    assert report(layer("a", 5), optimizers=()).notes == (
        "no optimizer is protected: training now would forget",
    )
    assert report(layer("a", 5), optimizers=(), tasks=0).notes == ()


def test_it_prints_as_a_table() -> None:
    text = str(report(layer("body.0", 4), layer("soft", 2.25)))
    lines = text.splitlines()
    assert lines[0] == "nscl memory of 1 task(s), protecting Adam"
    assert " ".join(lines[1].split()) == "layer kind protected by features free % R condition"
    assert set(lines[2]) == {"─", " "}
    assert " ".join(lines[3].split()) == "body.0 Linear null space 10 4 40.0 0.02 50"
    assert " ".join(lines[4].split()) == "soft Linear null space 10 2.2 22.5 0.02 50"
    assert lines[5].startswith("total")
    assert lines[6] == "statistics of bn moved by 0.5 σ"
    assert "still" not in text


def test_it_is_plain_data() -> None:
    data = json.loads(json.dumps(report(layer("a", 4), layer("b", 0)).to_dict()))
    assert [one["name"] for one in data["layers"]] == ["a", "b"]
    assert data["total"]["free"] == 4
    assert data["statistics"][0] == {"name": "bn", "shift": 0.5}
    assert data["notes"][0].startswith("0 % free")
    assert data["tasks"] == 1


def test_forgetting_prints_and_is_plain_data() -> None:
    total = LayerForgetting("total", 0.25, 0.5)
    found = Forgetting((LayerForgetting("a", 0.25, 0.5),), (Shift("bn", 2.0),), total)
    lines = str(found).splitlines()
    assert lines[0].split() == ["layer", "drift", "relative"]
    assert lines[2].split() == ["a", "0.25", "0.5"]
    assert lines[-1] == "statistics of bn moved by 2 σ"
    data = json.loads(json.dumps(found.to_dict()))
    told = {"name": "total", "drift": 0.25, "relative": 0.5, "loss": None, "weighed": None}
    assert data["total"] == told


def test_forgetting_shows_what_gradients_weigh() -> None:
    layers = (LayerForgetting("a", 0.25, 0.5, 0.125, 0.75), LayerForgetting("b", 0.0, 0.0))
    found = Forgetting(layers, (), LayerForgetting("total", 0.25, 0.5, 0.125, 0.75))
    lines = str(found).splitlines()
    assert lines[0].split() == ["layer", "drift", "relative", "weighed", "loss"]
    assert lines[2].split() == ["a", "0.25", "0.5", "0.75", "0.125"]
    assert lines[3].split() == ["b", "0", "0"]


def test_hard_rules_count_whole_directions() -> None:
    assert isinstance(directions(3.0000000001, soft=False), int)
    assert directions(2.5, soft=True) == 2.5
