"""Parameters in one memory: those with a common element are refused, neighbours are not."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import nscl
from nscl.core.model import shared_storage as overlaps
from nscl.errors import UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


def test_two_parameters_in_one_storage_cannot_be_protected() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight.data = model[0].weight.data
    with pytest.raises(UnsupportedError, match=r"'0.weight' and '1.weight' are two parameters in"):
        nscl.Memory.adam_nscl(model)
    with pytest.raises(UnsupportedError, match="untie them, or exclude="):
        nscl.Memory(model, rule=nscl.Ratio(), exclude=["1"])  # it would still move the other
    model[1].weight = nn.Parameter(model[0].weight.data[:, :3])
    with pytest.raises(UnsupportedError, match="in the same memory"):
        nscl.Memory.adam_nscl(model)
    model[1].weight = nn.Parameter(model[0].weight.data.clone())
    assert nscl.Memory.adam_nscl(model).tasks == 0


def test_parameters_side_by_side_in_one_buffer_are_compared_with_their_neighbours_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(20)))
    flat = nn.utils.parameters_to_vector(model.parameters())
    nn.utils.vector_to_parameters(flat, model.parameters())
    compared: list[Any] = []
    monkeypatch.setattr(overlaps, "_overlap", lambda *pair: compared.append(pair) or False)
    nscl.Memory.adam_nscl(model)
    assert compared == []  # not 40 · 39 / 2 of them, at every remember and report
    model[7].weight.data = model[3].weight.data.T
    nscl.Memory.adam_nscl(model)
    assert len(compared) == 1


def test_a_buffer_may_hold_several_types() -> None:
    raw = torch.zeros(96, dtype=torch.uint8)
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False).double())
    model[0].weight.data = raw[:16].view(torch.float32).view(2, 2)
    model[1].weight.data = raw[64:].view(torch.float64).view(2, 2)
    nscl.Memory.adam_nscl(model)
    model[1].weight.data = raw[8:40].view(torch.float64).view(2, 2)
    with pytest.raises(UnsupportedError, match="in the same memory"):
        nscl.Memory.adam_nscl(model)


def test_a_tying_made_later_is_noticed() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    memory = nscl.Memory.adam_nscl(model)
    model[1].weight.data = model[0].weight.data
    with pytest.raises(UnsupportedError, match="are two parameters in the same"):
        memory.remember([torch.randn(2, 3)])


def test_parameters_side_by_side_in_one_buffer_are_fine() -> None:
    model, flat = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), torch.randn(2, 9)
    model[0].weight.data, model[1].weight.data = flat[0].view(3, 3), flat[1].view(3, 3)
    assert nscl.Memory.adam_nscl(model).tasks == 0
    columns = torch.randn(3, 6)  # these interleave
    model[0].weight.data, model[1].weight.data = columns[:, :3], columns[:, 3:]
    assert nscl.Memory.adam_nscl(model).tasks == 0


@st.composite
def views(draw: st.DrawFn) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Shape, strides and start of a matrix somewhere in one buffer of 24 numbers."""
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    strides = draw(st.integers(columns, 6)), draw(st.integers(1, 2))
    last = (rows - 1) * strides[0] + (columns - 1) * strides[1]
    return (rows, columns), strides, draw(st.integers(0, 23 - last))


def elements(view: Any) -> set[int]:
    """Where in the buffer each element lies, one by one."""
    (rows, columns), (down, right), start = view
    return {start + i * down + j * right for i in range(rows) for j in range(columns)}


@settings(max_examples=80)
@given(one=views(), other=views(), trained=st.booleans(), excluded=st.booleans())
def test_parameters_are_refused_exactly_where_they_have_an_element_in_common(
    one: Any, other: Any, trained: bool, excluded: bool
) -> None:
    buffer = torch.zeros(24)
    parameters = {
        name: nn.Parameter(buffer.as_strided(*view), requires_grad=trained)
        for name, view in (("one", one), ("other", other))
    }
    shared = elements(one) & elements(other)
    names = {"one", "other"} if excluded else {"one"}
    refused = bool(shared) and trained and not excluded
    with pytest.raises(UnsupportedError) if refused else nullcontext():
        overlaps.reject_overlaps(parameters, names)
    found = list(overlaps.Aliases({"one": parameters["one"]}).of(parameters["other"].detach()))
    assert found == (["one"] if shared else [])
