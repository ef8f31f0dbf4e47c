"""Which optimizers can be protected: of one memory, once, and not those that search a line."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

import nscl
from nscl.errors import ProtectionError
from tests.core.protected_scene import (
    EXACT,
    mlp,
    protected_scene,
    sgd,
    values,
)


def test_an_optimizer_that_is_not_made_yet_is_left_to_a_callback() -> None:
    with pytest.raises(TypeError, match=r"not None: frameworks make it.*transformers.KeepMemory"):
        protected_scene().memory.protect(None)  # type: ignore[arg-type]


def test_once_is_enough() -> None:
    scene = protected_scene()
    with pytest.raises(ProtectionError, match="SGD is protected already"):
        scene.memory.protect(scene.optimizer)
    scene.protection.remove()
    scene.protection.remove()
    assert repr(scene.protection) == "Protection(removed)"
    scene.train()
    assert scene.moved() > 1e-3
    scene.before = scene.model(scene.old).detach()
    scene.memory.protect(scene.optimizer)
    with pytest.warns(nscl.NsclWarning, match="moved out of the null space"):
        scene.memory.remember([scene.old])
    scene.train()
    assert scene.moved() < 1e-12


def test_one_optimizer_has_one_memory() -> None:
    scene = protected_scene()
    other = nscl.Memory(scene.model, rule=EXACT)
    with pytest.raises(ProtectionError, match=r"SGD is protected by another memory.*merge"):
        other.protect(scene.optimizer)
    assert other.report().optimizers == ()
    scene.train()
    assert scene.moved() < 1e-12
    scene.protection.remove()
    assert other.protect(scene.optimizer).active


@pytest.mark.parametrize("acts_on", ["step", "displacement"])
def test_two_models_of_one_optimizer_have_a_memory_each(acts_on: Any) -> None:
    """An encoder and a decoder, trained together but remembered apart."""
    encoder, decoder = nn.Linear(6, 4).double(), nn.Linear(4, 6).double()
    optimizer = sgd([*encoder.parameters(), *decoder.parameters()])
    old = torch.randn(2, 6).double()
    for model, seen in ((encoder, old), (decoder, encoder(old).detach())):
        memory = nscl.Memory(model, rule=EXACT, acts_on=acts_on)
        memory.protect(optimizer)
        memory.remember([seen])
    before = decoder(encoder(old)).detach()

    def backward() -> float:
        optimizer.zero_grad()
        loss = decoder(encoder(torch.randn(8, 6).double())).square().mean()
        loss.backward()
        return float(loss.detach())

    backward()
    optimizer.step()
    optimizer.step(backward)
    assert torch.allclose(decoder(encoder(old)), before, atol=1e-12)
    with pytest.raises(ProtectionError, match="another memory"):
        nscl.Memory.adam_nscl(nn.ModuleList([encoder, decoder])).protect(optimizer)
    with pytest.raises(ProtectionError, match="protected already"):
        memory.protect(optimizer)


def test_a_protection_that_is_gone_does_not_count() -> None:
    scene = protected_scene()
    scene.optimizer._optimizer_step_pre_hooks.clear()  # as torch drops them from a copy
    assert nscl.Memory.adam_nscl(scene.model).protect(scene.optimizer).active


def test_optimizers_that_cannot_be_protected_say_why() -> None:
    model = mlp()
    memory = nscl.Memory.adam_nscl(model)
    with pytest.raises(ProtectionError, match="line search"):
        memory.protect(torch.optim.LBFGS(model.parameters()))
    with pytest.raises(ProtectionError, match="4 parameters and none of them belongs"):
        memory.protect(sgd(mlp().parameters()))
    with pytest.raises(ProtectionError, match="not str"):
        memory.protect("adam")  # type: ignore[arg-type]
    assert memory.report().optimizers == ()


class Accelerated(Optimizer):
    """Wraps like accelerate's AcceleratedOptimizer: an Optimizer that owns another."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer

    @property
    def param_groups(self) -> Any:  # type: ignore[override]
        return self.optimizer.param_groups

    def step(self, closure: Any = None) -> Any:
        return self.optimizer.step(closure)


class Fabricated:
    """Wraps like Fabric's _FabricOptimizer: takes the optimizer's class and attributes as well."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        kind = type(optimizer)
        self.__class__ = type(f"Fabric{kind.__name__}", (type(self), kind), {})

    @property
    def optimizer(self) -> Optimizer:
        return self._optimizer

    def step(self, closure: Any = None) -> Any:
        return self.optimizer.step(closure=closure) if closure else self.optimizer.step()


@pytest.mark.parametrize("wrap", [Accelerated, Fabricated, lambda o: Accelerated(Fabricated(o))])
def test_the_optimizer_inside_a_wrapper_is_protected(wrap: Callable[[Optimizer], Any]) -> None:
    scene = protected_scene()
    scene.protection.remove()
    wrapper = wrap(scene.optimizer)
    scene.memory.protect(wrapper)
    with pytest.raises(ProtectionError, match="SGD is protected already"):
        scene.memory.protect(scene.optimizer)
    for _ in range(3):
        scene.backward()
        wrapper.step()
    assert scene.moved() < 1e-12


class Decaying(torch.optim.Adam):
    """Does something to the weights around its parent's step."""

    def step(self, closure: Any = None) -> Any:
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.mul_(0.99)
        loss = super().step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(0.01)
        return loss


def test_a_step_that_calls_its_parents_step_is_projected_around_it_too() -> None:
    torch.optim.Adam(mlp().parameters())  # torch hooks the parent's step when first used
    scene = protected_scene(lambda p: Decaying(p, 1e-2))
    scene.train()
    assert scene.moved() < 1e-12


@pytest.mark.parametrize("rule", [nscl.Tolerance(1e-12), nscl.Ridge(1.0)])
def test_a_step_that_calls_its_parents_step_is_projected_once(rule: Any) -> None:
    torch.optim.Adam(mlp().parameters())
    results = []
    model, old = mlp(norm=True), torch.randn(3, 6, dtype=torch.float64)
    for _ in range(2):
        scene = protected_scene(
            lambda p: Decaying(p, 1e-2), model=copy.deepcopy(model), old=old, rule=rule
        )
        if results:
            # The same without a hooked parent: one pair of hooks around all of it.
            scene.optimizer.step = lambda o=scene.optimizer: without_parents_hooks(o)
        torch.manual_seed(1)
        scene.train()
        results.append(values(scene.model))
    for name in results[0]:
        assert torch.equal(results[0][name], results[1][name])


def without_parents_hooks(optimizer: Optimizer) -> Any:
    hooked = torch.optim.Adam.step
    torch.optim.Adam.step = hooked.__wrapped__
    try:
        return type(optimizer).step(optimizer)
    finally:
        torch.optim.Adam.step = hooked


class Nested(torch.optim.Adam):
    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


def test_after_an_exception_a_nested_step_starts_afresh() -> None:
    torch.optim.Adam(mlp().parameters())
    scene = protected_scene(lambda p: Nested(p, 1e-2))
    scene.backward()
    with pytest.raises(ZeroDivisionError) as kept:  # its traceback keeps the frames alive
        scene.optimizer.step(lambda: 1 / 0)
    scene.train()
    assert kept.tb is not None
    assert scene.moved() < 1e-12
