"""Forgetting as a table: a total is never shown without what it leaves out."""

from nscl.core.report import (
    Forgetting,
    LayerForgetting,
    ParameterForgetting,
    ProbeForgetting,
    Uncounted,
)
from tests.core.report.test_forgetting import TOTAL


def test_forgetting_shows_what_gradients_weigh() -> None:
    layers = (LayerForgetting("a", 0.25, 0.5, 0.125, 0.75), LayerForgetting("b", 0.0, 0.0))
    found = Forgetting(layers, (), LayerForgetting("total", 0.25, 0.5, 0.125, 0.75))
    lines = str(found).splitlines()
    assert lines[0].split() == ["layer", "drift", "relative", "weighed", "loss"]
    assert lines[2].split() == ["a", "0.25", "0.5", "0.75", "0.125"]
    assert lines[3].split() == ["b", "0", "0"]


def test_parameters_stand_in_the_table_with_what_is_known_of_them() -> None:
    norm = ParameterForgetting("norm", moved=0.5, loss=2.0, weighed=0.25)
    found = Forgetting((LayerForgetting("a", 0.25, 0.5),), (), TOTAL, (norm,))
    lines = str(found).splitlines()
    assert lines[0].split() == ["layer", "drift", "relative", "weighed", "loss", "moved"]
    assert lines[2].split() == ["a", "0.25", "0.5"]
    assert lines[3].split() == ["norm", "0.25", "2", "0.5"]
    assert lines[4].split() == ["total", "0.25", "0.5"]


def test_what_is_not_counted_stands_below_the_total() -> None:
    uncounted = (
        Uncounted("gru", "left free", 0.125),
        *(Uncounted(f"layer.{i}.norm", "left free", 0.01 * i) for i in range(1, 8)),
        Uncounted("new", "not known", None),
        Uncounted("tiny", "left free", 2e-6),
    )
    lines = str(Forgetting((), (), TOTAL, (), uncounted)).splitlines()
    assert lines[2].split() == ["total", "0.25", "0.5"]
    assert lines[3] == (
        "not counted: gru moved by 12.5 %, layer.*.norm (7 layers) moved by up to 7.0 %, "
        "tiny moved by 0.0002 %: left free"
    )
    assert lines[4] == "not counted: new: not known"


def test_a_probe_is_the_last_line() -> None:
    probe = ProbeForgetting(64, 0.5, 0.25)
    text = str(Forgetting((), (), TOTAL, probe=probe)).splitlines()[-1]
    assert text == "output on the probe (64 rows): drift 0.5, relative 0.25"
    probe = ProbeForgetting(64, 0.5, 0.25, 0.125, 0.984)
    text = str(Forgetting((), (), TOTAL, probe=probe)).splitlines()[-1]
    assert text.endswith("relative 0.25; KL 0.125, 98.4 % of the answers as before")


def test_many_layers_are_grouped_and_those_that_moved_most_come_first() -> None:
    layers = [LayerForgetting(f"layer.{i}.q", 1.0, 0.01 * i, 0.5, 0.0) for i in range(20)]
    layers += [LayerForgetting(f"layer.{i}.v", 2.0, 0.02 * i, 0.25, 0.0) for i in range(20)]
    total = LayerForgetting("total", 60.0, 0.5, 15.0, 0.0)
    norms = tuple(ParameterForgetting(f"layer.{i}.norm", 0.1 * i, 100.0, 0.5) for i in range(4))
    lines = str(Forgetting(tuple(layers), (), total, norms)).splitlines()
    assert lines[0].split() == [
        "layers", "number", "drift", "relative", "weighed", "loss", "moved",
    ]  # fmt: skip
    assert lines[2].split() == ["layer.*.norm", "4", "0.5", "400", "0.3"]
    assert lines[3].split() == ["layer.*.q", "20", "20", "0.19", "0", "10"]
    assert lines[4].split() == ["layer.*.v", "20", "40", "0.38", "0", "5"]
    assert lines[5].split() == ["total", "60", "0.5", "0", "15"]
