"""What a model is made of: sharing, refusing, and saying why."""

import sys
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nscl
from nscl.core.model.inventory import take_inventory, unwrap
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
