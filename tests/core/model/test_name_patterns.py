"""What exclude= means: names, patterns, biases, shared parameters, mistakes."""

from typing import Any

import pytest
import torch
from torch import nn

import nscl
from nscl.errors import NsclError, UnsupportedError
from tests.core.model.tying import Tied, normal, protected_training

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


def model_with_heads() -> nn.Module:
    return nn.ModuleDict(
        {
            "body": nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)),
            "heads": nn.ModuleDict({"one": nn.Linear(3, 2), "two": nn.Linear(3, 2)}),
            "norm": nn.LayerNorm(3),
        }
    )


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        ("heads", ["body.0", "body.1"]),
        (["heads.*"], ["body.0", "body.1"]),
        (["*.two", "body.0"], ["body.1", "heads.one"]),
        (["body.?", "heads.one.*"], ["heads.two"]),
        (["norm"], ["body.0", "body.1", "heads.one", "heads.two"]),
    ],
)
def test_exclude_takes_names_and_patterns(exclude: Any, left: list[str]) -> None:
    memory = nscl.Memory(model_with_heads(), rule=nscl.Ratio(), exclude=exclude)
    report = memory.report()
    assert [x.name for x in report.layers if x.protected_by == "free until remembered"] == [
        *left,
        *(["norm"] if exclude != ["norm"] else []),
    ]
    assert any(x.protected_by == "excluded" for x in report.layers)


def test_an_excluded_bias_is_left_free_and_its_weight_is_not() -> None:
    model = nn.Sequential(nn.Linear(3, 2)).double()
    memory, old = nscl.Memory(model, rule=nscl.Tolerance(1e-12), exclude=["0.bias"]), normal(1, 3)
    weight, bias = model[0].weight.detach().clone(), model[0].bias.detach().clone()
    memory.remember([old])
    protected_training(model, memory, normal(6, 3))
    assert (old @ (model[0].weight - weight).mT).abs().max() < 1e-13
    assert not torch.equal(model[0].bias, bias)


def test_a_typo_in_exclude_is_an_error() -> None:
    with pytest.raises(NsclError, match=r"exclude='haeds' matches no.*body, heads, norm"):
        nscl.Memory(model_with_heads(), rule=nscl.Ratio(), exclude=["body.0", "haeds"])


def test_a_shared_parameter_is_excluded_by_its_first_name_or_not_at_all() -> None:
    model = nn.ModuleDict({"enc": nn.Linear(3, 3), "dec": nn.Linear(3, 3, bias=False)})
    model["dec"].weight = model["enc"].weight
    with pytest.raises(UnsupportedError, match=r"'dec.weight' free, but that is 'enc.weight' too"):
        nscl.Memory(model, rule=nscl.Ratio(), exclude=["dec"])
    with pytest.raises(UnsupportedError, match=r"'out.weight' free, but that is 'embed.weight'"):
        nscl.Memory(Tied(), rule=nscl.Ratio(), exclude=["out"])  # its bias alone would be left free
    how = {
        x.name: x.protected_by
        for x in nscl.Memory(Tied(), rule=nscl.Ratio(), exclude=["out*", "embed"]).report().layers
    }
    assert how == {
        "mix": "free until remembered",
        "embed.weight": "excluded",
        "out.bias": "excluded",
    }


def test_everything_excluded_is_a_mistake() -> None:
    with pytest.raises(UnsupportedError, match="no layer that can be protected"):
        nscl.Memory(model_with_heads(), rule=nscl.Ratio(), exclude=["body", "heads"])
