"""Reports: data first, readable when printed, pointing at what deserves attention."""

import json

import pytest

from nscl.core.report import LayerReport, Report, Shift, directions


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
    notes = report(layer("stuck", 0), layer("loose", 10), layer("fine", 5)).notes
    assert len(notes) == 2
    assert notes[0].startswith("0 % free: stuck: the old data use every direction")
    assert notes[1].startswith("100 % free: loose: nothing is held here")
    assert report(layer("fine", 5)).notes == ()
    assert report(layer("x", 10, "free until remembered")).notes == ()


def test_many_names_are_cut_short() -> None:
    note = report(*(layer(f"layer{i}", 0) for i in range(6))).notes[0]
    assert "layer0, layer1, layer2, layer3 and 2 more" in note


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


def test_hard_rules_count_whole_directions() -> None:
    assert isinstance(directions(3.0000000001, soft=False), int)
    assert directions(2.5, soft=True) == 2.5


def embedding(free: float) -> LayerReport:
    return LayerReport("embed", "Embedding", 1000, free, 0.0, 3.0, "null space", tokens=True)


def test_free_tokens_do_not_hide_that_no_direction_is_free() -> None:
    found = report(embedding(950), layer("a", 1, features=100), layer("b", 1, features=100))
    assert (found.total.features, found.total.free) == (1200, 952)
    assert (found.matrices.features, found.matrices.free) == (200, 2)
    assert found.embeddings is not None
    assert (found.embeddings.features, found.embeddings.free) == (1000, 950)
    assert [line.split()[0] for line in str(found).splitlines()[-4:-2]] == [
        "embeddings",
        "matrices",
    ]
    assert "total" not in str(found)
    data = found.to_dict()
    assert (data["matrices"]["free"], data["embeddings"]["free"]) == (2, 950)


def test_one_total_is_enough_for_one_kind() -> None:
    for only in (layer("a", 1), embedding(3)):
        assert str(report(only)).splitlines()[4].startswith("total")
    assert report(layer("a", 1)).to_dict()["embeddings"] is None


def test_many_layers_are_grouped_and_the_least_free_come_first() -> None:
    queries = [layer(f"encoder.layer.{i}.attention.q", 5) for i in range(20)]
    values = [layer(f"encoder.layer.{i}.attention.v", 6 - (i == 7) * 5.5) for i in range(20)]
    norms = [layer(f"encoder.layer.{i}.norm", 0, "ewc") for i in range(20)]
    lines = str(report(*queries, *norms, *values)).splitlines()
    head = "layers kind protected by number least free % features free % R condition"
    assert " ".join(lines[1].split()) == head
    rows = [" ".join(line.split()) for line in lines[3:7]]
    assert rows[0] == "encoder.layer.*.attention.v Linear null space 20 5.0 200 114.5 57.2 0.02 50"
    assert rows[1] == "encoder.layer.*.attention.q Linear null space 20 50.0 200 100 50.0 0.02 50"
    assert rows[2].startswith("encoder.layer.*.norm Linear ewc 20 0.0 200 0")
    assert rows[3].startswith("total 40 layers null space")
