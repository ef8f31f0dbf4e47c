"""Gradients at the outputs of every layer type, against per-sample ones by torch.func."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

import nscl
from nscl.core.capture.output_gradients import OutputTaps
from nscl.core.covariance.packed import unpack
from nscl.core.model.inventory import take_inventory
from nscl.core.model.layer_types import Call, layer_type_of

pytestmark = pytest.mark.filterwarnings("ignore:no optimizer is protected:nscl.NsclWarning")


def remembered(memory: nscl.Memory, name: str) -> Tensor:
    state = memory.state_dict()
    samples = state["metadata"]["gradients"][name]["rows"]
    return unpack(state["tensors"][f"gradient/{name}"]) / samples


class Net(nn.Module):
    """Some layer, then as many numbers as there are classes."""

    def __init__(self, layer: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer, self.shape = layer, shape
        self.head = nn.LazyLinear(3).double()
        self.head(self._features(self.inputs(2)))

    def inputs(self, samples: int) -> Tensor:
        if isinstance(self.layer, nn.Embedding):
            return torch.randint(0, self.layer.num_embeddings, (samples, *self.shape))
        return torch.randn(samples, *self.shape, dtype=torch.float64)

    def _features(self, x: Tensor) -> Tensor:
        return F.relu(self.layer(x), inplace=True).flatten(1)  # in place: must not hide the output

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self._features(x))
        return out


LAYERS: dict[str, tuple[nn.Module, tuple[int, ...], int]] = {
    "linear": (nn.Linear(4, 5), (4,), 1),
    "linear on sequences": (nn.Linear(4, 5), (3, 4), 2),
    "conv": (nn.Conv2d(2, 4, 3, padding=1), (2, 5, 5), 1),
    "grouped conv": (nn.Conv1d(4, 6, 3, groups=2, bias=False), (4, 7), 1),
    "transposed": (nn.ConvTranspose2d(2, 4, 3, stride=2, groups=2), (2, 3, 3), 1),
    "embedding": (nn.Embedding(7, 4), (5,), 2),
}


def loss(output: Tensor, batch: Tensor) -> Tensor:
    return output.cos().sum(1).mean()  # any loss that is a mean over samples


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_those_of_single_samples(name: str) -> None:
    torch.manual_seed(0)
    layer, shape, channel = LAYERS[name]
    model = Net(layer.double(), shape).double()
    x = model.inputs(6)
    memory = nscl.Memory(model, rule=nscl.Penalty())
    memory.remember(x.split(4), loss=lambda output, batch: loss(output, batch))

    def one(sample: Tensor) -> Tensor:
        output = model.layer(sample[None]).detach()
        by = jacrev(lambda o: loss(model.head(F.relu(o).flatten(1)), sample))(output)
        return by.movedim(channel, -1).flatten(0, -2)  # [positions, out]

    groups = getattr(layer, "groups", 1)
    rows = torch.cat([one(sample) for sample in x]).unflatten(-1, (groups, -1)).transpose(0, 1)
    assert torch.allclose(remembered(memory, "layer"), rows.mT @ rows / len(x), atol=1e-14)


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_attention_has_gradients_at_all_four_projections(separate: bool, bias: bool) -> None:
    torch.manual_seed(0)
    sizes = {"kdim": 3, "vdim": 5} if separate else {}
    attention = nn.MultiheadAttention(4, 2, batch_first=True, bias=bias, **sizes).double()

    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out: Tensor = self.attention(q, k, v, need_weights=False)[0]
            return out.sum(1)

    q, k, v = (torch.randn(6, n, d).double() for n, d in ((2, 4), (3, sizes.get("kdim", 4)),
                                                         (3, sizes.get("vdim", 4))))  # fmt: skip
    model = Attending()
    memory = nscl.Memory(model, rule=nscl.Penalty())
    memory.remember([{"q": q, "k": k, "v": v}], loss=lambda o, b: o.cos().sum(1).mean())

    # The gradient by a bias that is added to every position alone is that of its output there.
    if separate:
        weights = {n: getattr(attention, f"{n}_proj_weight") for n in "qkv"}
    else:
        weights = dict(zip("qkv", attention.in_proj_weight.chunk(3), strict=True))
    biases = attention.in_proj_bias.chunk(3) if bias else [torch.zeros(4).double()] * 3

    def rest(q1: Tensor, k1: Tensor, v1: Tensor) -> Tensor:
        heads = [t.unflatten(-1, (2, 2)).transpose(-2, -3) for t in (q1, k1, v1)]
        out = F.scaled_dot_product_attention(*heads).transpose(-2, -3).flatten(-2)
        return attention.out_proj(out).sum(-2).cos().sum()

    projected = [
        F.linear(x, weights[n], b) for x, n, b in zip((q, k, v), "qkv", biases, strict=True)
    ]
    by = vmap(jacrev(rest, argnums=(0, 1, 2)))(*projected)
    for label, rows in zip(("query", "key", "value"), by, strict=True):
        flat = rows.flatten(0, 1)
        truth = flat.mT @ flat / 6
        assert torch.allclose(remembered(memory, f"attention.{label}")[0], truth, atol=1e-13), label
    output = model(q, k, v)
    flat = (-output.sin())[:, None].expand(-1, 2, -1).flatten(0, 1)
    truth = flat.mT @ flat / 6
    assert torch.allclose(remembered(memory, "attention.output")[0], truth, atol=1e-13)


def test_every_use_of_a_shared_weight_counts() -> None:
    torch.manual_seed(0)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3).double()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.layer(self.layer(x).tanh())
            return out

    model, x = Twice(), torch.randn(5, 3).double()
    memory = nscl.Memory(model, rule=nscl.Penalty())
    memory.remember([x], loss=loss)
    first = model.layer(x).detach().requires_grad_()
    second = model.layer(first.tanh())
    loss_sum = loss(second, x) * 5
    rows = torch.cat(torch.autograd.grad(loss_sum, (first, second)))
    assert torch.allclose(remembered(memory, "layer")[0], rows.mT @ rows / 5)


def test_the_gradients_of_a_frozen_layer_are_remembered_too() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    model[0].requires_grad_(False)
    memory = nscl.Memory(model, rule=nscl.Penalty())
    memory.remember([torch.randn(6, 4)])
    assert remembered(memory, "0").abs().sum() > 0
    assert not model[0].weight.requires_grad
    assert functional_call(model, {}, torch.randn(1, 4)).shape == (1, 3)


def tapped(widest: int | None) -> tuple[OutputTaps, list[Tensor], Tensor]:
    """Taps on one call of a linear layer, the rows that will arrive, and the call's output."""
    layer, arrived = nn.Linear(2, 3).double(), list[Tensor]()
    (block,) = take_inventory(layer).blocks.values()
    shapes = {"weight": layer.weight.shape}
    taps = OutputTaps(shapes, lambda _, rows: arrived.append(rows), widest=widest)
    x = torch.randn(4, 2, dtype=torch.float64)
    call, kind = Call((x,), {}, layer(x)), layer_type_of(layer)
    assert kind is not None
    handed = taps.add(layer, kind, [block], call, [torch.tensor([True, False, True, True])])
    assert torch.equal(handed, call.output)
    return taps, arrived, handed


def test_rows_that_count_arrive_with_the_backward_pass() -> None:
    taps, arrived, output = tapped(widest=None)
    torch.autograd.grad(output.cos().sum(), taps.edges)
    (rows,) = arrived
    assert torch.allclose(rows[0], -output.detach()[[0, 2, 3]].sin())
    taps.check()
    taps.clear()
    assert taps.edges == []


@pytest.mark.parametrize(("widest", "count"), [(3, 1), (2, 0)])
def test_a_layer_that_is_too_wide_is_left_out(widest: int, count: int) -> None:
    taps, arrived, output = tapped(widest)
    torch.autograd.grad(output.sum(), taps.edges)
    assert len(arrived) == count


class Doubled(nn.Module):
    """A layer that does not end with the product of its rows and its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x @ self.weight.T] * 2, -1)


nscl.register_layer(Doubled, check=False)(lambda module, x: x)


def test_an_output_of_another_width_is_refused_with_the_way_out() -> None:
    memory = nscl.Memory(nn.Sequential(Doubled(), nn.Linear(6, 2)))
    with pytest.raises(nscl.NsclError, match=r"'0' gave an output of 6 channels.*factors='input'"):
        memory.remember([torch.randn(5, 4)])
    assert memory.tasks == 0
