"""Norm layers held by EWC: the Fisher by its definition, many tasks in two tensors."""

import warnings
from typing import Any, Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nscl
from nscl.core.norms.fisher import STRENGTH, Anchor, FisherAccumulator
from nscl.errors import FeatureError
from tests.core.memories import move, remembered, same

pytestmark = pytest.mark.filterwarnings("ignore::nscl.NsclWarning")

NORMS: dict[str, Any] = {
    "BatchNorm1d": lambda: nn.BatchNorm1d(4),
    "LayerNorm": lambda: nn.LayerNorm(4),
    "GroupNorm": lambda: nn.GroupNorm(2, 4),
    "RMSNorm": lambda: nn.RMSNorm(4),
}


def network(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), norm, nn.Tanh(), nn.Linear(4, 3)).double()


def fisher_by_hand(model: nn.Module, batches: list[Tensor]) -> dict[str, Tensor]:
    """``Σ B·(∂L/∂w)² / batches`` with the model's own labels, batch by batch."""
    model.eval()
    sums = {name: torch.zeros_like(p) for name, p in model[1].named_parameters()}
    for batch in batches:
        logits = model(batch)
        loss = F.cross_entropy(logits, logits.argmax(1))
        gradients = torch.autograd.grad(loss, list(model[1].parameters()))
        for name, gradient in zip(sums, gradients, strict=True):
            sums[name] += len(batch) * gradient**2 / len(batches)
    return {name: value.detach() for name, value in sums.items()}


@pytest.mark.parametrize("make", NORMS.values(), ids=NORMS.keys())
def test_three_tasks_pull_as_the_explicit_sum_over_tasks(make: Any) -> None:
    model = network(make())
    memory, tasks = nscl.Memory.adam_nscl(model), list[Any]()
    for _ in range(3):
        batches = [torch.randn(n, 3, dtype=torch.float64) for n in (4, 2)]
        then = {name: p.detach().clone() for name, p in model[1].named_parameters()}
        tasks.append((fisher_by_hand(model, batches), then))
        memory.remember(batches)
        move(model)
    penalty = sum(
        STRENGTH * (F_s[name] * (p - then[name]) ** 2).sum()
        for F_s, then in tasks
        for name, p in model[1].named_parameters()
    )
    expected = torch.autograd.grad(penalty, list(model[1].parameters()))
    for (name, p), gradient in zip(model[1].named_parameters(), expected, strict=True):
        anchor = memory._state.anchors[f"1.{name}"]
        assert torch.allclose(
            anchor.parabola().gradient(p.detach()), gradient, rtol=1e-11, atol=1e-14
        )
        assert anchor.fisher.abs().max() > 0


def test_state_is_two_tensors_however_many_tasks() -> None:
    model = network(nn.LayerNorm(4))
    memory = nscl.Memory.adam_nscl(model)
    for _ in range(3):
        memory.remember([torch.randn(2, 3).double()])
        assert memory.nbytes["anchors"] == 2 * 2 * 4 * 8
    names = [n for n in memory.state_dict()["tensors"] if n.startswith(("fisher", "pull"))]
    assert names == ["fisher/1.weight", "pull/1.weight", "fisher/1.bias", "pull/1.bias"]


def test_the_penalty_of_two_tasks_is_centred_between_their_weights() -> None:
    first = Anchor(torch.tensor([2.0]).double(), torch.tensor([2.0]).double(), 1)  # at 1
    both = first.plus(Anchor(torch.tensor([1.0]).double(), torch.tensor([4.0]).double(), 1))  # at 4
    there = torch.tensor([2.0]).double()  # the weighted mean of 1 and 4
    assert both.parabola().gradient(there).abs() < 1e-12
    assert both.parabola().value(there + 1) == pytest.approx(STRENGTH * 3)


def test_without_information_nothing_is_pulled() -> None:
    empty = Anchor(torch.zeros(2).double(), torch.zeros(2).double(), 1)
    assert empty.parabola().gradient(torch.ones(2)).tolist() == [0.0, 0.0]


def test_row_7_of_the_sanity_table() -> None:
    """Gradients 1 and 3 in one batch: B · mean² = 8."""
    weight = nn.Parameter(torch.zeros((), dtype=torch.float64))
    sums = FisherAccumulator({"w": weight})
    sums.add((torch.tensor([1.0, 3.0]).double() * weight).mean(), 2)
    assert sums.anchors()["w"].fisher == 8
    sums.add(weight * 0, 5)  # a second batch without gradient halves it
    assert sums.anchors()["w"].fisher == 4


def test_no_batches_anchor_nothing() -> None:
    assert FisherAccumulator({"w": nn.Parameter(torch.ones(1))}).anchors() == {}


def test_halves_of_a_task_mix_to_the_whole() -> None:
    model, batches = network(nn.LayerNorm(4)), [torch.randn(n, 3).double() for n in (4, 2, 5)]
    parts = []
    for some in (batches, batches[:2], batches[2:]):
        memory = nscl.Memory.adam_nscl(model)
        memory.remember(some)
        parts.append(memory._state.anchors["1.weight"])
    whole, mixed = parts[0], parts[1].mixed(parts[2])
    assert mixed.batches == whole.batches == 3
    assert torch.allclose(mixed.fisher, whole.fisher, rtol=1e-13)
    assert torch.allclose(mixed.pull, whole.pull, rtol=1e-13)


def test_a_loss_of_ones_own_replaces_the_labels() -> None:
    model, x = network(nn.LayerNorm(4)), torch.randn(5, 3).double()
    labels = torch.tensor([0, 1, 2, 0, 1])
    memory = nscl.Memory.adam_nscl(model)
    memory.remember([(x, labels)], loss=lambda output, batch: F.cross_entropy(output, batch[1]))
    loss = F.cross_entropy(model.eval()(x), labels)
    (gradient,) = torch.autograd.grad(loss, [model[1].weight])
    found = memory.state_dict()["tensors"]["fisher/1.weight"]
    assert torch.allclose(found, 5 * gradient**2, rtol=1e-12)
    assert memory.state_dict()["metadata"]["batches"] == {"1.weight": 1, "1.bias": 1}


def test_norms_that_have_not_run_are_free() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.used, self.unused = nn.Linear(3, 3), nn.LayerNorm(3), nn.LayerNorm(3)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(self.body(x))

    for norms, how in (("ewc", "ewc"), ("freeze", "frozen"), ("train", "left free")):
        report = nscl.Memory(Two(), rule=nscl.Ratio(), norms=norms).remember([torch.randn(4, 3)])
        shown = {line.name: line.protected_by for line in report.layers}
        assert shown["used"] == how
        assert shown["unused"] == ("left free" if norms == "train" else "free until remembered")


class Branched(nn.Module):
    """A norm on the way to each of two outputs."""

    def __init__(self, outputs: Any = lambda one, two: (one, two)) -> None:
        super().__init__()
        self.body, self.one, self.two = nn.Linear(3, 4), nn.LayerNorm(4), nn.LayerNorm(4)
        self.outputs = outputs

    def forward(self, x: Tensor) -> Any:
        hidden = self.body(x)
        return self.outputs(self.one(hidden), self.two(hidden))


W = torch.randn(3, 4)
OUTPUTS: dict[str, Any] = {
    "tuple": lambda one, two: (one, two),
    "dict": lambda one, two: {"boxes": one, "masks": two},
    "nested": lambda one, two: [torch.arange(4), {"heads": (one, two)}],
}


@pytest.mark.parametrize("outputs", OUTPUTS.values(), ids=OUTPUTS.keys())
def test_norms_on_the_way_to_every_output_are_anchored(outputs: Any) -> None:
    model, x = Branched(outputs).double(), torch.randn(8, 3).double()
    memory = nscl.Memory.adam_nscl(model)
    memory.remember([x])
    found = memory.state_dict()["tensors"]
    for name in ("one", "two"):
        norm = model.get_submodule(name)
        loss = norm(model.body(x)).square().sum() / 8
        (gradient,) = torch.autograd.grad(loss, [norm.weight])
        assert torch.allclose(found[f"fisher/{name}.weight"], 8 * gradient**2, rtol=1e-12)


UNREACHED: dict[str, Any] = {
    "beside logits": lambda one, two: {"logits": one, "hidden": two},
    "detached": lambda one, two: (one, two.detach()),
    "left out": lambda one, two: one,
}


@pytest.mark.parametrize("outputs", UNREACHED.values(), ids=UNREACHED.keys())
def test_a_norm_that_the_loss_does_not_reach_is_not_called_protected(outputs: Any) -> None:
    model, x = Branched(outputs), torch.randn(8, 3)
    memory = nscl.Memory.adam_nscl(model)
    with pytest.warns(nscl.NsclWarning, match=r"not anchored: two\.weight, two\.bias: .*loss="):
        report = memory.remember([x])
    shown = {line.name: (line.protected_by, line.free) for line in report.layers}
    assert shown["one"] == ("ewc", 0)
    assert shown["two"] == ("free until remembered", 8)
    both = memory.remember([x], loss=lambda _, x: (model.one(x @ W) * model.two(x @ W)).mean())
    assert {line.protected_by for line in both.layers[1:]} == {"ewc"}
    frozen = nscl.Memory(model, rule=nscl.Ratio(), norms="freeze").remember([x])
    assert {line.protected_by for line in frozen.layers[1:]} == {"frozen"}


def test_a_norm_under_the_models_own_no_grad_is_reported_and_nothing_changes_if_that_is_an_error(
    recwarn: pytest.WarningsRecorder,
) -> None:
    class Frozen(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                hidden = self[1](self[0](x))
            return self[3](self[2](hidden))

    model = Frozen(nn.Linear(3, 4), nn.LayerNorm(4), nn.LayerNorm(4), nn.Linear(4, 3))
    memory, x = nscl.Memory.adam_nscl(model), torch.randn(8, 3)
    memory.protect(optimizer := torch.optim.SGD(model.parameters(), 0.1))
    known = remembered(memory)
    warnings.simplefilter("error")
    with pytest.raises(nscl.NsclWarning, match=r"not anchored: 1\.weight, 1\.bias: "):
        memory.remember([x])
    assert same(remembered(memory), known)
    warnings.simplefilter("always")
    report = memory.remember([x])
    assert [w.filename for w in recwarn] == [__file__]
    assert [line.protected_by for line in report.layers[-2:]] == ["free until remembered", "ewc"]
    del optimizer


def test_a_norm_that_some_batches_reach_is_anchored_by_those() -> None:
    turns, x = iter([True, False, True, True]), torch.randn(8, 3)
    model = Branched(lambda one, two: (one, two if next(turns) else two.detach()))
    half, whole = nscl.Memory.adam_nscl(model), nscl.Memory.adam_nscl(model)
    half.remember([x, x])
    whole.remember([x, x])
    fisher = [m.state_dict()["tensors"]["fisher/two.weight"] for m in (half, whole)]
    assert torch.equal(2 * fisher[0], fisher[1])


@pytest.mark.parametrize(
    ("kind", "norms"),
    [
        ("LayerNorm", "freeze"),
        ("LayerNorm", "train"),
        ("LayerNorm", "ewc"),
        ("BatchNorm1d", "freeze"),
    ],
)
def test_norm_layers_are_frozen_left_free_or_held_as_asked(kind: str, norms: Any) -> None:
    make = NORMS[kind]
    model, plain = network(make()), network(make())
    plain.load_state_dict(model.state_dict())
    memory = nscl.Memory(model, norms=norms, rule=nscl.Ratio(1e12))  # all else is free
    optimizers = [torch.optim.SGD(m.parameters(), 1e-3) for m in (model, plain)]
    memory.protect(optimizers[0])
    memory.remember([torch.randn(8, 3).double()])
    before = {name: p.detach().clone() for name, p in model[1].named_parameters()}
    for _ in range(3):
        x = torch.randn(8, 3).double()
        for each, optimizer in zip((model, plain), optimizers, strict=True):
            optimizer.zero_grad()
            each.train()(x).square().sum().backward()
            optimizer.step()
    for name, p in model[1].named_parameters():
        moved, freely = p - before[name], plain[1].get_parameter(name) - before[name]
        if norms == "freeze":
            assert torch.equal(p, before[name])
        elif norms == "train":
            assert torch.allclose(moved, freely, atol=1e-12)
        else:
            assert 0 < moved.norm() < freely.norm()


def test_norms_frozen_while_remembered_are_anchored_for_the_day_they_are_not() -> None:
    model, x = network(nn.LayerNorm(4)), torch.randn(3, 3).double()
    memory, usual = nscl.Memory.adam_nscl(model), nscl.Memory.adam_nscl(model)
    usual.remember([x])
    model[1].requires_grad_(False)
    line = memory.remember([x]).layers[-1]
    assert (line.name, line.protected_by) == ("1", "ewc")
    assert not any(p.requires_grad or p.grad is not None for p in model[1].parameters())
    for name, anchor in usual._state.anchors.items():
        assert torch.equal(memory._state.anchors[name].fisher, anchor.fisher)
        assert torch.equal(memory._state.anchors[name].pull, anchor.pull)


def test_norms_stay_frozen_when_the_pass_fails() -> None:
    model = network(nn.LayerNorm(4))
    model[1].requires_grad_(False)
    with pytest.raises(nscl.NsclError):
        nscl.Memory.adam_nscl(model).remember([torch.randn(3, 7).double()])
    assert not any(p.requires_grad for p in model[1].parameters())


def moved(rate: float, momentum: float, *, norms: Literal["ewc", "train"]) -> tuple[Any, Tensor]:
    """A new loss would rather have scales at zero: how far each goes, and its curvature if held."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 1)).double()
    with torch.no_grad():
        model[3].bias.fill_(40.0)  # a large output: its squared norm is steep
    memory = nscl.Memory(model, rule=nscl.Ratio(), norms=norms)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum)
    memory.protect(optimizer)
    x = torch.randn(64, 1).double()
    memory.remember(x.split(16))
    then = model[1].weight.detach().clone()
    for _ in range(60):
        optimizer.zero_grad()
        model[1](model[0](x)).square().mean().backward()
        optimizer.step()
    anchor = memory._state.anchors.get("1.weight")
    return anchor and 2 * STRENGTH * anchor.fisher, (model[1].weight - then).abs().detach()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("rate", [1e-1, 1e-2, 1e-4])
def test_no_rate_makes_the_pull_diverge(rate: float, momentum: float) -> None:
    curvature, held = moved(rate, momentum, norms="ewc")
    steep = rate * curvature > 10  # an explicit step would overshoot and explode
    assert steep.any()
    assert (held[steep] < 0.1 * moved(rate, momentum, norms="train")[1][steep]).all()


class Unrated(torch.optim.Optimizer):
    """Moves by a hundredth of the gradient, and says nothing of it."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=0.01)


@pytest.mark.parametrize("defaults", [{}, {"lr": None}])
def test_an_optimizer_without_a_rate_feels_the_whole_pull(defaults: dict[str, Any]) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2)).double()
    optimizer = Unrated(model.parameters(), defaults)
    memory = nscl.Memory.adam_nscl(model)
    memory.protect(optimizer)
    memory.remember([torch.randn(8, 4, dtype=torch.float64)])
    with torch.no_grad():
        model[1].weight += 0.1
    model(torch.randn(8, 4, dtype=torch.float64)).square().sum().backward()
    before, own = model[1].weight.detach().clone(), model[1].weight.grad.clone()
    pull = memory._state.anchors["1.weight"].parabola().gradient(before)
    optimizer.step()
    assert torch.allclose(model[1].weight, before - 0.01 * (own + pull), rtol=1e-12)


def test_a_gradient_that_is_not_finite_names_its_parameter_and_changes_nothing() -> None:
    class Rooted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.norm, self.out = nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            z = self.norm(self.inner(x))
            return self.out((z * (z > 0)).sqrt())  # finite, with an infinite slope at 0

    memory = nscl.Memory.adam_nscl(Rooted())
    with pytest.raises(FeatureError, match=r"respect to norm\.weight"):
        memory.remember([torch.randn(8, 3)])
    assert not memory._state.anchors
    assert not memory._state.covariances
