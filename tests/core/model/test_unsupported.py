"""Models that cannot be protected: the error names the parameter and the way out."""

import re
from typing import Any

import pytest
import torch
from torch import nn

import nscl
from nscl.errors import UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


def test_one_bias_beside_two_weights_cannot_be_protected() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4))
    model[1].bias = model[0].bias
    with pytest.raises(UnsupportedError, match=r"'0' and '1' share the bias '0.bias'.*untie"):
        nscl.Memory.adam_nscl(model)
    free = nscl.Memory(model, rule=nscl.Ratio(), exclude=["0.bias"])
    assert free.remember([torch.randn(2, 3)]).layers[-1].protected_by == "excluded"


def test_one_weight_multiplied_in_two_ways_cannot_be_protected() -> None:
    conv, back = nn.Conv2d(3, 3, 2, bias=False), nn.ConvTranspose2d(3, 3, 2, bias=False)
    back.weight = conv.weight
    with pytest.raises(UnsupportedError, match=r"share the parameter '0.weight'.*no projection"):
        nscl.Memory.adam_nscl(nn.Sequential(conv, back))
    grouped = nn.Conv2d(6, 4, 2, bias=False), nn.Conv2d(12, 4, 2, groups=2, bias=False)
    grouped[1].weight = grouped[0].weight
    with pytest.raises(UnsupportedError, match="share the parameter"):
        nscl.Memory.adam_nscl(nn.ModuleList(grouped))


REFUSED: dict[str, tuple[Any, str]] = {
    "no layer": (lambda: nn.Sequential(nn.ReLU()), "no layer that can be protected"),
    "norms only": (lambda: nn.Sequential(nn.LayerNorm(3)), "no layer that can be protected"),
    "frozen": (lambda: nn.Linear(2, 2).requires_grad_(False), "every parameter .* is frozen"),
    "lazy": (lambda: nn.LazyLinear(2), "has no shape yet: run one batch"),
    "complex": (lambda: nn.Linear(2, 2, dtype=torch.complex64), "'weight' is torch.complex64"),
    "max_norm": (lambda: nn.Embedding(3, 2, max_norm=1.0), "has max_norm, which rewrites"),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_models_that_cannot_be_protected_say_why(make: Any, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        nscl.Memory.adam_nscl(make())


def test_integer_weights_are_named() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = nn.Parameter(torch.ones(2, 2, dtype=torch.int8), requires_grad=False)
    with pytest.raises(UnsupportedError, match=re.escape("'1.weight' is torch.int8")):
        nscl.Memory.adam_nscl(model)
    assert nscl.Memory(model, rule=nscl.Ratio(), exclude=["1"]).report().layers[0].name == "0"


class NamedLikeAMatrix(nn.MultiheadAttention):
    """An attention whose child is called as its first matrix is in reports and files."""

    def __init__(self) -> None:
        super().__init__(8, 2)
        self.query = nn.Linear(8, 8)


def test_two_matrices_of_one_name_are_refused_by_both_their_parameters() -> None:
    model = nn.ModuleDict({"attn": NamedLikeAMatrix()})
    message = r"'attn.query' is .*'attn.in_proj_weight' \(.*\) and 'attn.query.weight' \(Linear\)"
    with pytest.raises(UnsupportedError, match=message):
        nscl.Memory.adam_nscl(model)
    names = [
        x.name
        for x in nscl.Memory(model, rule=nscl.Ratio(), exclude=["attn.query"]).report().layers
    ]
    assert names[:4] == ["attn.query", "attn.key", "attn.value", "attn.output"]


def test_a_memory_is_loaded_for_a_model_with_values_only(tmp_path: Any) -> None:
    nscl.Memory(nn.Linear(4, 2)).save(tmp_path / "m")
    with pytest.raises(UnsupportedError, match="on the meta device"):
        nscl.Memory.load(tmp_path / "m", nn.Linear(4, 2, device="meta"))
