"""A forward put on an instance: fine around the layer's own, an error in its place."""

from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nscl
from nscl.errors import UnsupportedError
from tests.core.memories import remembered, rows_seen, same

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


def patch(layer: nn.Module, forward: Callable[..., Any]) -> nn.Module:
    layer.forward = MethodType(forward, layer)
    return layer


def square(layer: nn.Module, x: Tensor) -> Tensor:
    return F.linear(x**2, layer.weight, layer.bias)


def wrapped(layer: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return type(layer).forward(layer, *args, **kwargs)


def test_a_forward_on_the_instance_that_computes_something_else_is_an_error() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), patch(nn.Linear(4, 2), square))
    memory = nscl.Memory.adam_nscl(model)
    with pytest.raises(UnsupportedError, match=r"'2' was given a forward.*what Linear does"):
        memory.remember([torch.randn(3, 4)])
    assert memory.tasks == 0
    assert (
        nscl.Memory(model, rule=nscl.Ratio(), exclude="2").remember([torch.randn(3, 4)]).tasks == 1
    )


PATCHED: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "Linear": (lambda: nn.Linear(4, 2), torch.randn(3, 4)),
    "Conv2d": (lambda: nn.Conv2d(2, 3, 3, padding=1), torch.randn(2, 2, 5, 5)),
    "Embedding": (lambda: nn.Embedding(5, 4), torch.tensor([[1, 2]])),
    "attention": (lambda: nn.MultiheadAttention(4, 2, batch_first=True), torch.randn(2, 3, 4)),
}


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *((kind, torch.bfloat16) for kind in PATCHED),  # the coarsest rounding
        ("Linear", torch.float32),
        ("Conv2d", torch.float64),
    ],
)
def test_a_forward_on_the_instance_that_wraps_its_own_is_fine(
    kind: str, dtype: torch.dtype
) -> None:
    make, x = PATCHED[kind]
    model, x = make().to(dtype), x.to(dtype) if x.is_floating_point() else x
    run = (lambda m, x: m(x, x, x)) if kind == "attention" else (lambda m, x: m(x))
    plain, memory = nscl.Memory.adam_nscl(model), nscl.Memory.adam_nscl(model)
    plain.remember([x], forward=run)
    patch(model, wrapped)
    memory.remember([x], forward=run)
    assert same(remembered(memory), remembered(plain))


def test_a_patched_layer_may_be_called_with_nothing() -> None:
    model = nn.Sequential(nn.Linear(4, 3), patch(nn.Linear(3, 2), wrapped))
    memory = nscl.Memory.adam_nscl(model)
    memory.remember(
        [torch.randn(5, 4)], forward=lambda m, x: torch.cat([m(x), m[1](torch.randn(0, 3))])
    )
    assert rows_seen(memory, "1") == 5


def test_a_convolution_patched_inside_is_noticed() -> None:
    conv = nn.Conv2d(2, 3, 3)
    conv._conv_forward = lambda x, weight, bias: F.conv2d(x.abs(), weight, bias)
    with pytest.raises(UnsupportedError, match="does not compute what Conv2d does"):
        nscl.Memory.adam_nscl(conv).remember([torch.randn(2, 2, 4, 4)])
