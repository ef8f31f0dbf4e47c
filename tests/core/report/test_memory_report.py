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


def test_training_unprotected_is_pointed_at() -> None:
    assert report(layer("a", 5), optimizers=()).notes == (
        "no optimizer is protected: training now would forget",
    )
    assert report(layer("a", 5), optimizers=(), tasks=0).notes == ()


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
