"""The norm penalty's gradient: right for every kind of step, and gone from ``.grad`` afterwards."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import nscl
from nscl.core.norms.fisher import STRENGTH
from tests.core.protected_scene import Scene, mlp, protected_scene, sgd, values


class Twice(torch.optim.SGD):
    """Calls its closure twice in a step, as line searches and sharpness-aware steps do."""

    def step(self, closure: Any = None) -> Any:
        closure()
        return super().step(closure)


class Clearing(torch.optim.SGD):
    """Clears gradients as part of its step."""

    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        self.zero_grad()
        return loss


def norm_parameters(model: nn.Module) -> dict[str, Tensor]:
    norms = (m for m in model.modules() if isinstance(m, nn.LayerNorm))
    mine = {id(p) for m in norms for p in m.parameters()}
    return {name: p for name, p in model.named_parameters() if id(p) in mine}


def remembered(make: Callable[[Iterable[nn.Parameter]], Optimizer] = sgd, **options: Any) -> Scene:
    """Two tasks, so that there are two anchors, then pushed away from both."""
    scene = protected_scene(make, model=mlp(norm=True), **options)
    with torch.no_grad():
        for p in norm_parameters(scene.model).values():
            p.add_(0.1 * torch.randn_like(p))
    scene.memory.remember([torch.randn(5, 6).double(), torch.randn(4, 6).double()])
    with torch.no_grad():
        for p in norm_parameters(scene.model).values():
            p.add_(0.1 * torch.randn_like(p))
    return scene


def penalty(scene: Scene, model: nn.Module) -> Tensor:
    """``100 Σ F (w − w*)²`` up to a constant, written as a loss."""
    total = torch.zeros((), dtype=torch.float64)
    for name, p in norm_parameters(model).items():
        anchor = scene.memory._state.anchors[name]
        total = total + STRENGTH * (anchor.fisher * p**2 - 2 * anchor.pull * p).sum()
    return total


OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], Optimizer]] = {
    "plain": lambda p: torch.optim.SGD(p, 1e-3, momentum=0.9, foreach=False),
    "foreach": lambda p: torch.optim.AdamW(p, 1e-3, foreach=True),
    "fused": lambda p: torch.optim.Adam(p, 1e-3, fused=True),
    "fused sgd": lambda p: torch.optim.SGD(p, 1e-3, momentum=0.9, fused=True),
    "maximize": lambda p: torch.optim.SGD(p, 1e-3, maximize=True),
    "twice": lambda p: Twice(p, 1e-3),
    "clearing": lambda p: Clearing(p, 1e-3),
}


def run(
    model: nn.Module,
    optimizer: Optimizer,
    extra: Callable[[nn.Module], Tensor | float],
    *,
    scaled: bool,
    closed: bool,
) -> None:
    """Four steps of two accumulated batches each; ``extra`` is added to every step's loss."""
    scaler = torch.amp.GradScaler("cpu", enabled=scaled, init_scale=2.0**10)
    for i in range(4):
        x = torch.randn(2, 8, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(i))

        def closure(x: Tensor = x) -> Tensor:
            optimizer.zero_grad()
            scaler.scale(model(x[0]).square().mean()).backward()
            loss = model(x[1]).square().mean() + extra(model)
            scaler.scale(loss).backward()
            return loss

        if closed:
            optimizer.step(closure)
        else:
            closure()
            scaler.step(optimizer)
            scaler.update()


@pytest.mark.parametrize(
    ("name", "how"),
    [
        *((name, "plain") for name in OPTIMIZERS if name != "twice"),
        *((name, "scaled") for name in ("foreach", "fused", "fused sgd", "clearing")),
        *((name, "closure") for name in ("plain", "twice", "clearing")),
    ],
)
def test_it_equals_the_penalty_written_into_the_loss(name: str, how: str) -> None:
    scene = remembered(OPTIMIZERS[name])
    model = copy.deepcopy(scene.model)
    optimizer = OPTIMIZERS[name](model.parameters())
    sign = -1.0 if name == "maximize" else 1.0
    options = {"scaled": how == "scaled", "closed": how == "closure"}
    start = values(scene.model)
    for p, q in zip(scene.model.parameters(), model.parameters(), strict=True):
        if not any(q is n for n in norm_parameters(model).values()):
            p.requires_grad_(False)
            q.requires_grad_(False)
    run(scene.model, scene.optimizer, lambda _: 0.0, **options)
    run(model, optimizer, lambda m: sign * penalty(scene, m), **options)
    found, expected = values(scene.model), values(model)
    for key in norm_parameters(model):
        assert (found[key] - start[key]).abs().max() > 1e-4
        torch.testing.assert_close(found[key], expected[key], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", ["plain", "foreach", "fused", "fused sgd", "clearing"])
def test_gradients_are_what_they_would_be_without_protection(name: str, scaled: bool) -> None:
    scene = remembered(OPTIMIZERS[name])
    model = copy.deepcopy(scene.model)
    optimizer = OPTIMIZERS[name](model.parameters())
    x = torch.randn(8, 6, dtype=torch.float64)
    for m, o in ((scene.model, scene.optimizer), (model, optimizer)):
        scaler = torch.amp.GradScaler("cpu", enabled=scaled)
        o.zero_grad()
        scaler.scale(m(x).square().mean()).backward()
        own = {n: p.grad for n, p in m.named_parameters()}
        scaler.step(o)
        if name != "clearing":
            assert all(p.grad is own[n] for n, p in m.named_parameters())
    for mine, theirs in zip(scene.model.parameters(), model.parameters(), strict=True):
        if mine.grad is None or theirs.grad is None:
            assert mine.grad is theirs.grad
        else:
            assert torch.equal(mine.grad, theirs.grad)


def test_a_closure_that_adds_up_gradients_is_pulled_once() -> None:
    scene = remembered(lambda p: Twice(p, 1e-3))
    x = torch.randn(8, 6, dtype=torch.float64)

    def closure() -> Tensor:
        loss = scene.model(x).square().mean()
        loss.backward()
        return loss

    parameters = norm_parameters(scene.model)
    scene.optimizer.zero_grad()
    closure()
    pulls = torch.autograd.grad(penalty(scene, scene.model), list(parameters.values()))
    expected = [
        p.detach() - 1e-3 * (2 * p.grad + pull)
        for p, pull in zip(parameters.values(), pulls, strict=True)
    ]
    scene.optimizer.zero_grad()
    scene.optimizer.step(closure)
    for p, value in zip(parameters.values(), expected, strict=True):
        torch.testing.assert_close(p.detach(), value, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_step_that_raises_costs_no_gradient(set_to_none: bool) -> None:
    scene = remembered()
    weight = scene.model[1].weight
    handle = scene.optimizer.register_step_pre_hook(lambda *_: 1 / 0)
    scene.backward()
    own = weight.grad.clone()
    with pytest.raises(ZeroDivisionError):
        scene.optimizer.step()
    handle.remove()
    scene.optimizer.zero_grad(set_to_none=set_to_none)
    scene.model(scene.old * 2).square().mean().backward()
    fresh = weight.grad.clone()
    scene.optimizer.step()
    assert torch.equal(weight.grad, fresh)
    assert not torch.equal(fresh, own)


def test_removing_after_a_step_that_raised_gives_gradients_back() -> None:
    scene = remembered()
    handle = scene.optimizer.register_step_pre_hook(lambda *_: 1 / 0)
    scene.backward()
    own = scene.model[1].weight.grad
    kept = own.clone()
    with pytest.raises(ZeroDivisionError):
        scene.optimizer.step()
    handle.remove()
    scene.protection.remove()
    assert scene.model[1].weight.grad is own
    assert torch.equal(own, kept)


def test_what_has_no_gradient_or_is_frozen_is_not_pulled() -> None:
    scene = remembered()
    norm = scene.model[1]
    norm.bias.requires_grad_(False)
    before = values(norm)
    scene.optimizer.zero_grad()
    scene.optimizer.step()
    assert torch.equal(norm.weight, before["weight"])
    scene.train()
    assert torch.equal(norm.bias, before["bias"])
    assert not torch.equal(norm.weight, before["weight"])


@pytest.mark.parametrize("norms", ["freeze", "train"])
def test_norms_that_are_frozen_or_free_are_not_pulled(norms: Any) -> None:
    scene = protected_scene(model=mlp(norm=True), norms=norms)
    before = values(scene.model[1])
    scene.train()
    for name, now in values(scene.model[1]).items():
        assert torch.equal(now, before[name]) is (norms == "freeze")
    assert norms == "train" or scene.moved() < 1e-12


def test_gradscalers_factor_does_not_overflow_half_precision() -> None:
    model = nn.Sequential(nn.Linear(6, 7), nn.LayerNorm(7), nn.Linear(7, 3)).half()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    memory = nscl.Memory(model, rule=nscl.Energy(0.1))
    memory.protect(optimizer)
    memory.remember([torch.randn(9, 6).half()])
    with torch.no_grad():
        model[1].weight.add_(0.5)
    scaler = torch.amp.GradScaler("cpu")  # its first factor, 65536, is infinite in float16
    scaler.scale(model(torch.randn(9, 6).half()).float().square().mean() * 1e-4).backward()
    before = model[1].weight.detach().clone()
    scaler.step(optimizer)
    assert all(bool(p.isfinite().all()) for p in model.parameters())
    assert (model[1].weight < before).all()
