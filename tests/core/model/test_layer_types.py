"""Every layer type against its own derivative, own types end to end."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import nscl
from nscl.core.model import layer_types as layers
from nscl.core.model.inventory import take_inventory
from nscl.core.model.layer_types import Call, register_layer, running_statistics
from nscl.errors import FeatureError, UnsupportedError
from tests.core.memories import covariance, rows_of, rows_seen, second_moment
from tests.core.model.tying import Untaught, protected_training

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


class Scaled(nn.Linear):
    def forward(self, x: Tensor, by: float = 2.0) -> Tensor:
        return super().forward(by * x)


class Kernel(nn.Module):
    """Names of its own, one row without leading dimensions, a bias that is no parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(2, 3, 2))
        self.register_buffer("offset", torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.kernel.flatten(1) @ x + self.offset


@pytest.fixture
def fresh_types(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(layers, "_TYPES", dict(layers._TYPES))
    return


@pytest.mark.usefixtures("fresh_types")
def test_an_own_type_is_taught_and_protected() -> None:
    model = nn.Sequential(Scaled(6, 6), nn.ReLU(), nn.Linear(6, 2)).double()
    with pytest.raises(UnsupportedError, match=r"'0.weight' \(Scaled\), '0.bias' \(Scaled\)"):
        nscl.Memory.adam_nscl(model)

    @register_layer(Scaled)
    def rows(module: Scaled, x: Tensor, by: float = 2.0) -> Tensor:
        return by * x

    old = normal(2, 6)[torch.arange(8) % 2]
    before = model(old).detach()
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-12))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    memory.protect(optimizer)
    memory.remember([old])
    assert (covariance(memory, "0")[0, :6, :6] - 4 * old.mT @ old / 8).abs().max() < 1e-13
    for _ in range(10):
        optimizer.zero_grad()
        model(normal(9, 6)).square().sum().backward()
        optimizer.step()
    assert (model(old) - before).abs().max() < 1e-10
    assert not torch.equal(model(normal(1, 6)), before[:1])


@pytest.mark.usefixtures("fresh_types")
def test_an_own_type_with_names_of_its_own() -> None:
    @register_layer(Kernel, weight="kernel", bias="offset")
    def rows(module: Kernel, x: Tensor) -> Tensor:
        return x

    model = Kernel().double()
    memory, x = nscl.Memory.adam_nscl(model), normal(6)
    memory.remember([x])
    assert (covariance(memory, "model")[0] - torch.outer(x, x)).abs().max() < 1e-14
    assert memory.report().layers[0].features == 6  # a buffer is no bias


@pytest.mark.usefixtures("fresh_types")
def test_rows_that_do_not_fit_the_weight_are_named() -> None:
    @register_layer(Scaled)
    def rows(module: Scaled, x: Tensor) -> Tensor:
        return x[..., :2]

    memory = nscl.Memory.adam_nscl(nn.Sequential(Scaled(3, 3)))
    with pytest.raises(FeatureError, match=r"'0' was given rows of 2 features.*register_layer"):
        memory.remember([torch.randn(2, 3)])
    assert memory.tasks == 0


class Mixing(nn.Module):
    """A square weight that is stored the other way round."""

    def __init__(self, size: int = 6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size))
        self.bias = nn.Parameter(torch.randn(size))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


@pytest.mark.usefixtures("fresh_types")
def test_a_weight_stored_the_other_way_round_is_protected_as_such() -> None:
    register_layer(Mixing, transposed=True)(lambda module, x: x)
    model, old = nn.Sequential(Mixing(), nn.Tanh(), nn.Linear(6, 2)).double(), normal(2, 6)
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-12))
    memory.remember([old])
    before = model(old).detach()
    protected_training(model, memory, normal(9, 6))
    assert (model(old) - before).abs().max() < 1e-12


@pytest.mark.usefixtures("fresh_types")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_wrong_function_is_an_error_that_names_the_layer(dtype: torch.dtype) -> None:
    model, x = nn.Sequential(nn.Linear(6, 6), Mixing()).to(dtype), torch.randn(5, 6, dtype=dtype)
    rows: Any
    for rows, transposed in ((lambda m, x: x, False), (lambda m, x: 1.2 * x, True)):
        register_layer(Mixing, transposed=transposed)(rows)
        memory = nscl.Memory.adam_nscl(model)
        message = r"layer '1' \(Mixing\) does not compute rows @ weight.T.*exclude=\['1'\]"
        with pytest.raises(FeatureError, match=message):
            memory.remember([x])
        assert memory.tasks == 0
    register_layer(Mixing, transposed=True)(lambda m, x: x)
    assert nscl.Memory.adam_nscl(model).remember([x]).layers[1].protected_by == "null space"


@pytest.mark.usefixtures("fresh_types")
def test_what_follows_the_product_can_be_left_uncompared() -> None:
    class Rectified(Mixing):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).relu()

    register_layer(Rectified, transposed=True)(lambda module, x: x)
    model, x = Rectified(), torch.randn(5, 6)
    with pytest.raises(FeatureError, match="check=False if it computes more after the product"):
        nscl.Memory.adam_nscl(model).remember([x])
    register_layer(Rectified, transposed=True, check=False)(lambda module, x: x)
    assert nscl.Memory.adam_nscl(model).remember([x]).tasks == 1


@pytest.mark.usefixtures("fresh_types")
def test_a_layer_is_compared_once_in_a_pass() -> None:
    register_layer(Mixing, transposed=True)(lambda module, x: x)
    kind, compared = layers._TYPES[Mixing], []

    def output(*args: Any) -> Tensor:
        compared.append(args)
        return kind.output(*args)  # type: ignore[misc]

    layers._TYPES[Mixing] = replace(kind, output=output)
    memory = nscl.Memory.adam_nscl(Mixing())
    memory.remember([torch.randn(5, 6) for _ in range(4)])
    memory.remember([torch.randn(5, 6)])
    assert len(compared) == 2


def test_only_modules_can_be_registered() -> None:
    with pytest.raises(TypeError, match=r"subclass of torch\.nn\.Module"):
        register_layer(dict)  # type: ignore[arg-type]


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
