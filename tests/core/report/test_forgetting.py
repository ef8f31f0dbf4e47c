"""Measured forgetting: plain data, and a table that shows no total without what it leaves out."""

import json

from nscl.core.report import (
    Forgetting,
    LayerForgetting,
    ParameterForgetting,
    ProbeForgetting,
    Shift,
    Uncounted,
)

TOTAL = LayerForgetting("total", 0.25, 0.5)


def test_forgetting_prints_and_is_plain_data() -> None:
    total = LayerForgetting("total", 0.25, 0.5)
    found = Forgetting((LayerForgetting("a", 0.25, 0.5),), (Shift("bn", 2.0),), total)
    lines = str(found).splitlines()
    assert lines[0].split() == ["layer", "drift", "relative"]
    assert lines[2].split() == ["a", "0.25", "0.5"]
    assert lines[-2] == "statistics of bn moved by 2 σ"
    assert lines[-1].startswith("running statistics of bn moved by 2 σ since the last remember: ")
    data = json.loads(json.dumps(found.to_dict()))
    expected = {"name": "total", "drift": 0.25, "relative": 0.5, "loss": None, "weighed": None}
    assert data["total"] == expected


def test_everything_is_plain_data() -> None:
    found = Forgetting(
        (),
        (),
        TOTAL,
        (ParameterForgetting("norm", 0.5, 2.0, 0.25),),
        (Uncounted("gru", "left free", None),),
        ProbeForgetting(4, 0.5, 0.25),
    )
    data = json.loads(json.dumps(found.to_dict()))
    assert data["parameters"] == [{"name": "norm", "moved": 0.5, "loss": 2.0, "weighed": 0.25}]
    assert data["uncounted"] == [{"name": "gru", "why": "left free", "moved": None}]
    assert data["probe"]["rows"] == 4
    assert data["probe"]["kl"] is None
