"""What a model is made of: sharing, refusing, and saying why."""

import re
import sys
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.core.model import shared_storage as overlaps
from nscl.core.model.inventory import take_inventory, unwrap
from nscl.errors import UnsupportedError
from tests.core.memories import covariance, move, rows_seen, second_moment
from tests.core.model.tying import Tied, Untaught, normal, protected_training

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")


class Shared(nn.Module):
    """Two linears with one weight and two biases, one after the other."""

    def __init__(self, *, second_bias: bool = True) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = nn.Linear(3, 3, bias=second_bias)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x).tanh())


@pytest.mark.parametrize("second_bias", [True, False])
def test_a_shared_weight_has_every_use_and_a_constant_for_every_bias(second_bias: bool) -> None:
    model = Shared(second_bias=second_bias).double()
    memory, x = nscl.Memory(model, rule=nscl.Tolerance(1e-12)), normal(5, 3)
    memory.remember([x])
    deeper = model.a(x).tanh().detach()
    first = torch.cat([x, torch.ones(5, 1), torch.zeros(5, 1)], 1)
    second = torch.cat([deeper, torch.zeros(5, 1), torch.ones(5, 1)], 1)
    rows = torch.cat([first, second])[None, :, : 5 if second_bias else 4]
    assert list(memory.state_dict()["metadata"]["blocks"]) == ["a"]
    assert rows_seen(memory, "a") == 10
    assert (covariance(memory, "a") - second_moment(rows)).abs().max() < 1e-12


def test_a_shared_weight_is_held_for_all_its_modules() -> None:
    model = Shared().double()
    model.a, model.b = nn.Linear(6, 6).double(), nn.Linear(6, 6).double()
    model.b.weight = model.a.weight
    memory, old = nscl.Memory(model, rule=nscl.Tolerance(1e-12)), normal(1, 6)
    before = model(old).detach()
    memory.remember([old])
    protected_training(model, memory, normal(8, 6))
    assert (model(old) - before).abs().max() < 1e-12
    assert memory.forgetting().total.drift < 1e-20


def test_forgetting_of_a_shared_weight_is_over_all_its_uses() -> None:
    model = Shared().double()
    memory, x = nscl.Memory.adam_nscl(model), normal(5, 3)
    deeper = model.a(x).tanh().detach()
    memory.remember([x])
    before = torch.cat([model.a(x), model.b(deeper)]).detach()
    move(model)
    now = torch.cat([model.a(x), model.b(deeper)]).detach()
    found = memory.forgetting().layers[0]
    assert found.drift == pytest.approx(float((now - before).square().sum(-1).mean()), rel=1e-11)


def test_an_embedding_tied_to_an_output_layer_is_held_as_both() -> None:
    model = Tied().double()
    memory, old = nscl.Memory(model, rule=nscl.Tolerance(1e-12)), torch.tensor([[1, 2], [2, 1]])
    before = model(old).detach()
    weight, bias = model.embed.weight.detach().clone(), model.out.bias.detach().clone()
    names = [line.name for line in memory.remember([old]).layers]
    assert names == ["embed", "mix", "out"]
    protected_training(model, memory, torch.randint(0, 7, (9, 2)))
    assert (model(old) - before).abs().max() < 1e-12
    assert torch.equal(model.embed.weight[[1, 2]], weight[[1, 2]])
    assert torch.equal(model.out.bias[[1, 2]], bias[[1, 2]])
    assert not torch.equal(model.embed.weight, weight)  # tokens never seen go on learning


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


def test_convolutions_may_share_a_weight_at_different_strides() -> None:
    class Pyramid(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fine = nn.Conv1d(2, 2, 3, padding=1)
            self.coarse = nn.Conv1d(2, 2, 3, stride=2)
            self.coarse.weight, self.coarse.bias = self.fine.weight, self.fine.bias

        def forward(self, x: Tensor) -> Tensor:
            return self.coarse(self.fine(x))

    memory = nscl.Memory.adam_nscl(Pyramid())
    memory.remember([torch.randn(2, 2, 9)])
    assert rows_seen(memory, "fine") == 2 * (9 + 4)
    assert covariance(memory, "fine").shape == (1, 7, 7)  # one bias, one constant


class GatedHeads(nn.Module):
    """Unknown layers, one of which a pass runs, and a parameter that a function is given."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.heads = nn.ModuleList([nn.GRU(4, 2), nn.GRU(4, 2), Untaught()])
        self.scales = nn.ParameterList([torch.ones(4), torch.ones(4)])

    def forward(self, x: Tensor) -> Tensor:
        return self.heads[0](self.heads[2](self.body(x)) * self.scales[0])[0]


def test_unknown_layers_that_never_ran_stay_free_until_they_do() -> None:
    model = GatedHeads()
    memory = nscl.Memory(model, rule=nscl.Ratio(), unsupported="freeze")
    how = {x.name: x.protected_by for x in memory.remember([torch.randn(3, 4)]).layers}
    for name in ("heads.0.weight_ih_l0", "heads.0.bias_hh_l0", "heads.2.weight"):
        assert how[name] == "frozen", name
    for name in ("heads.1.weight_ih_l0", "heads.1.bias_hh_l0", "scales.1"):
        assert how[name] == "free until remembered", name
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with memory.protect(optimizer):
        out = model(torch.randn(5, 4)).sum() + model.heads[1](torch.randn(5, 4))[0].sum()
        (out + model.scales[1].sum()).backward()
        optimizer.step()
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved >= {"heads.1.weight_ih_l0", "scales.1"}
    assert not moved & {"heads.0.weight_ih_l0", "heads.2.weight"}


@pytest.mark.parametrize("how", ["freeze", "train"])
def test_an_unknown_layer_is_held_or_left_free_as_asked(how: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 4), Untaught(), nn.Linear(4, 2)).double()
    memory = nscl.Memory(model, rule=nscl.Ratio(), unsupported=how)
    slope = model[1].weight.detach().clone()
    line = memory.remember([normal(3, 4)]).layers[-1]
    assert (line.name, line.kind) == ("1.weight", "Untaught")
    assert line.protected_by == ("frozen" if how == "freeze" else "left free")
    protected_training(model, memory, normal(5, 4))
    assert torch.equal(model[1].weight, slope) == (how == "freeze")


def test_parameters_that_do_not_train_need_no_protection() -> None:
    model = nn.Sequential(nn.Linear(2, 2), Untaught(2))
    model[1].weight.requires_grad_(False)
    assert nscl.Memory.adam_nscl(model).report().layers[-1].protected_by == "left free"


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


def test_wrappers_are_taken_off() -> None:
    model = nn.Linear(2, 2)
    compiled = torch.compile(model, backend="eager")
    assert unwrap(nn.DataParallel(compiled)) is model
    assert nscl.Memory.adam_nscl(compiled).model is model


def test_names_do_not_tell_that_a_part_is_compiled() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    model[0], model[1] = (torch.compile(model[i], backend="eager") for i in (0, 1))
    found = take_inventory(model)
    assert list(found.blocks) == ["0", "2"]
    assert list(found.norms) == ["1"]
    assert found.blocks["0"].parameters == ("0.weight", "0.bias")


def instructions(model: nn.Module) -> int:
    """How many instructions of the interpreter an inventory takes: the same on any machine."""
    count, before = 0, sys.gettrace()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        take_inventory(model, exclude=["0"])
    finally:
        sys.settrace(before)
    return count


def test_the_work_grows_with_the_number_of_layers_not_with_its_square() -> None:
    few, many = (
        nn.Sequential(*(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)) for _ in range(count)))
        for count in (20, 80)
    )
    assert instructions(many) < 5 * instructions(few)  # four times the layers; it had been 6.7


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
