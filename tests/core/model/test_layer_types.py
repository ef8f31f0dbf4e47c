"""Every layer type against its own derivative, own types end to end."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import nscl
from nscl.core.model.inventory import take_inventory
from nscl.core.model.layer_types import Call, running_statistics
from nscl.errors import UnsupportedError
from tests.core.memories import covariance, rows_of, rows_seen, second_moment
from tests.core.model.tying import Untaught

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")

CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)

SIZE = (5, 4, 3)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def check(layer: nn.Module, tasks: list[Tensor], channel: int = 1, **kwargs: Any) -> None:
    """Algorithm 2 over several tasks equals the covariance of all their rows together."""
    layer = layer.double()
    memory = nscl.Memory.adam_nscl(layer)
    for inputs in tasks:
        memory.remember([inputs], forward=lambda model, x: model(x, **kwargs))
    name = next(iter(take_inventory(layer).blocks))
    rows = torch.cat([rows_of(layer, x, channel=channel, **kwargs) for x in tasks], 1)
    found = covariance(memory, name)
    assert rows_seen(memory, name) == rows.shape[1]
    assert (found - second_moment(rows)).abs().max() < 1e-12


@pytest.mark.parametrize(
    ("leading", "bias"), [((), True), ((4,), False), ((2, 3), True), ((2, 1, 3), True)]
)
def test_linear_with_any_leading_dimensions(leading: tuple[int, ...], bias: bool) -> None:
    check(nn.Linear(5, 3, bias=bias), [normal(*leading, 5) for _ in range(3)], channel=-1)


PADDINGS: list[dict[str, Any]] = [
    {},
    {"padding": 2},
    {"padding": "same"},
    {"padding": "same", "dilation": 2},
    {"padding": "valid"},
    {"padding": 1, "padding_mode": "reflect"},
    {"padding": 2, "padding_mode": "circular"},
    {"padding": "same", "padding_mode": "replicate"},
]


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # torch's own, about its speed
@pytest.mark.parametrize(
    ("dims", "options"),
    [
        *((3, options) for options in PADDINGS),
        *((n, PADDINGS[3]) for n in (1, 2)),
        (1, PADDINGS[6]),
    ],
    ids=str,
)
def test_convolutions_with_every_padding(dims: int, options: dict[str, Any]) -> None:
    kernel = (2, 3, 2)[:dims]
    if options.get("dilation"):
        options = {**options, "dilation": (2, 1, 1)[:dims]}
    layer = CONVS[dims - 1](2, 3, kernel, **options)
    check(layer, [normal(2, 2, *SIZE[:dims]), normal(1, 2, *SIZE[:dims])])


@settings(max_examples=40)
@given(data=st.data())
def test_convolutions_of_every_shape(data: st.DataObject) -> None:
    draw, dims = data.draw, data.draw(st.integers(1, 3))
    groups = draw(st.sampled_from([1, 2, 4]))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(dims))

    layer = CONVS[dims - 1](
        4,
        draw(st.sampled_from([4, 8])),  # groups = 4 is depthwise, with or without a multiplier
        each(1, 3),
        stride=each(1, 2),
        padding=each(0, 2),
        dilation=each(1, 2),
        groups=groups,
        bias=draw(st.booleans()),
    ).double()
    size = each(1, 4)
    try:
        layer(normal(1, 4, *size))
    except RuntimeError:  # the kernel does not fit
        reject()
    check(layer, [normal(n, 4, *size) for n in (2, 1)])


@settings(max_examples=40)
@given(data=st.data())
def test_transposed_convolutions_of_every_shape(data: st.DataObject) -> None:
    draw, dims = data.draw, data.draw(st.integers(1, 3))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(dims))

    stride = each(1, 3)
    layer = TRANSPOSED[dims - 1](
        4,
        draw(st.sampled_from([2, 4])),
        each(1, 3),
        stride=stride,
        padding=each(0, 2),
        dilation=each(1, 2),
        output_padding=tuple(draw(st.integers(0, s - 1)) for s in stride),
        groups=draw(st.sampled_from([1, 2])),
        bias=draw(st.booleans()),
    ).double()
    size = each(1, 3)
    try:
        empty = layer(normal(1, 4, *size)).numel() == 0
    except RuntimeError:  # padding eats the whole output
        reject()
    if empty:
        reject()
    check(layer, [normal(n, 4, *size) for n in (2, 1)])


def test_a_transposed_convolution_with_a_given_output_size() -> None:
    layer = nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1)
    for size in ([7, 7], [8, 7], [8, 8]):
        check(layer, [normal(2, 2, 4, 4)], output_size=size)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_single_image_without_a_batch_dimension(dims: int) -> None:
    image = normal(4, *SIZE[:dims])
    for kind in (CONVS[dims - 1], TRANSPOSED[dims - 1]):
        check(kind(4, 2, 2, groups=2), [image], channel=0)


def test_an_image_size_that_changes_between_batches() -> None:
    layer = nn.Conv2d(2, 3, 3, padding=1).double()
    tasks = [normal(2, 2, n, m) for n, m in itertools.product((1, 2, 5), (3, 4))]
    memory = nscl.Memory.adam_nscl(layer)
    memory.remember(tasks)
    rows = torch.cat([rows_of(layer, x) for x in tasks], 1)
    assert (covariance(memory, "model") - second_moment(rows)).abs().max() < 1e-12


def test_inputs_by_keyword() -> None:
    layer = nn.Linear(3, 2).double()
    memory, x = nscl.Memory.adam_nscl(layer), normal(4, 3)
    memory.remember([{"input": x}])
    rows = torch.cat([x, torch.ones_like(x[:, :1])], 1)
    assert (covariance(memory, "model")[0] - rows.mT @ rows / 4).abs().max() < 1e-14


def test_an_embedding_counts_its_tokens() -> None:
    layer = nn.Embedding(6, 3, padding_idx=0).double()
    memory = nscl.Memory.adam_nscl(layer)
    memory.remember([torch.tensor([[0, 1], [1, 5]]), torch.tensor([1])])
    memory.remember([torch.tensor([[2]], dtype=torch.int32)])
    state = memory.state_dict()
    assert state["tensors"]["covariance/model"].tolist() == [1, 3, 1, 0, 0, 1]
    assert state["metadata"]["blocks"]["model"]["seen"]["rows"] == 6
    line = memory.report().layers[0]
    assert (line.features, line.free) == (6, 2)


def test_a_module_called_several_times_has_seen_all_of_it() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.layer(x).tanh())

    model = Twice().double()
    memory, x = nscl.Memory.adam_nscl(model), normal(7, 3)
    memory.remember([x])
    deeper = model.layer(x).tanh().detach()
    rows = torch.cat([torch.cat([x, deeper]), torch.ones(14, 1).double()], 1)[None]
    assert rows_seen(memory, "layer") == 14
    assert (covariance(memory, "layer") - second_moment(rows)).abs().max() < 1e-12


def test_a_subclass_counts_as_its_parent_while_it_computes_the_same() -> None:
    class Same(nn.Linear):
        def extra_repr(self) -> str:
            return "same"

    class Other(nn.Conv2d):
        def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            return super()._conv_forward(2 * x, weight, bias)

    assert take_inventory(nn.Sequential(Same(2, 2))).blocks["0"].kind == "Same"
    with pytest.raises(UnsupportedError, match="Other"):
        nscl.Memory.adam_nscl(nn.Sequential(nn.Linear(2, 2), Other(2, 2, 1)))


UNKNOWN = r"no null space is known for '1\..*register_layer.*unsupported='freeze'"

UNTAUGHT: list[Callable[[], nn.Module]] = [
    lambda: nn.LSTM(2, 2),
    lambda: nn.Bilinear(2, 2, 2),
    lambda: nn.EmbeddingBag(2, 2),
    lambda: Untaught(2),
]


@pytest.mark.parametrize("make", UNTAUGHT)
def test_an_unknown_layer_is_never_passed_over(make: Callable[[], nn.Module]) -> None:
    with pytest.raises(UnsupportedError, match=UNKNOWN):
        nscl.Memory.adam_nscl(nn.Sequential(nn.Linear(2, 2), make()))


def test_a_call_knows_its_input_however_it_was_passed() -> None:
    x = torch.ones(1)
    assert Call((x,), {}, None).input() is x
    assert Call((), {"input": x}, None).input() is x


def test_running_statistics_of_those_that_keep_them() -> None:
    assert running_statistics(nn.BatchNorm1d(2)).keys() == {"running_mean", "running_var"}
    assert running_statistics(nn.BatchNorm1d(2, track_running_stats=False)) == {}
    assert running_statistics(nn.LayerNorm(2)) == {}
