"""The lines of a report: how each layer is held, and the numbers beside it."""

from typing import Any

import pytest
import torch
from torch import nn

import nscl
from tests.core.model.tying import Untaught

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


def lines(report: nscl.Report) -> dict[str, Any]:
    return {line.name: line for line in report.layers}


def test_a_report_says_how_everything_is_held() -> None:
    model = nn.Sequential(
        nn.Linear(3, 4), nn.LayerNorm(4), Untaught(), nn.Linear(4, 2), nn.Linear(2, 2)
    )
    memory = nscl.Memory(model, unsupported="train", exclude=["4"], rule=nscl.Ratio(2.0))
    how = {name: line.protected_by for name, line in lines(memory.report()).items()}
    assert how == {
        "0": "free until remembered",
        "3": "free until remembered",
        "1": "free until remembered",
        "2.weight": "left free",
        "4.bias": "excluded",
        "4.weight": "excluded",
    }
    found = lines(memory.remember([torch.randn(99, 3)]))
    assert found["0"].protected_by == found["3"].protected_by == "null space"
    assert (found["0"].kind, found["0"].features) == ("Linear", 4)
    assert found["1"].protected_by == "ewc"
    assert (found["1"].features, found["1"].free) == (8, 0)


def test_numbers_of_a_report_are_those_of_the_spectrum() -> None:
    model = nn.Linear(3, 2, bias=False).double()
    memory = nscl.Memory(model, rule=nscl.Ratio(10.0))
    rows = torch.diag(torch.tensor([2.0, 1.0, 0.1])).double() * 3**0.5  # C = diag(4, 1, 0.01)
    line = memory.remember([rows]).layers[0]
    assert (line.features, line.free) == (3, 1)
    assert line.share == pytest.approx(0.001996, abs=5e-7)
    assert line.condition == pytest.approx(400)
    soft = nscl.Memory(model, rule=nscl.Ridge(1.0)).remember([rows]).layers[0]
    values = torch.tensor([4, 1, 0.01])
    weights = 1 / (1 + values / values.mean())
    assert soft.free == pytest.approx(float(weights.sum()), rel=1e-6)
    assert soft.share == pytest.approx(float((weights * values).sum() / values.sum()), rel=1e-6)
