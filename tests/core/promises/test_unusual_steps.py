"""Unusual steps are projected like any other: compiled, scaled, skipped, broken off, watched."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import nscl
from tests.core.protected_scene import MakeOptimizer, mlp, protected_scene, sgd, values


@pytest.mark.parametrize(
    ("acts_on", "dtype"), [("step", torch.bfloat16), ("displacement", torch.float16)]
)
def test_a_step_inside_of_autocast_is_projected_in_full_precision(
    acts_on: Any, dtype: torch.dtype
) -> None:
    model, old = mlp().float(), torch.randn(3, 6)
    scene = protected_scene(model=model, old=old, rule=nscl.Tolerance(1e-6), acts_on=acts_on)
    with torch.autocast("cpu", dtype=dtype):
        scene.train(20)
        assert torch.is_autocast_enabled("cpu")
    assert scene.moved() < 2e-6


class Products(TorchDispatchMode):
    """Notes how precise matrix products are allowed to be when they are made."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "bmm" in str(func):
            self.seen.append(torch.backends.cuda.matmul.fp32_precision)
        return func(*args, **(kwargs or {}))


def test_a_step_is_projected_without_tf32_and_gives_it_back() -> None:
    scene = protected_scene()
    scene.backward()
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        with Products() as products:
            scene.optimizer.step()
        assert set(products.seen) == {"ieee"}
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"


def test_a_step_that_raises_leaves_no_stale_snapshot() -> None:
    scene = protected_scene(model=mlp(norm=True))
    scene.train()
    scene.backward()
    with pytest.raises(ZeroDivisionError):
        scene.optimizer.step(lambda: 1 / 0)
    with torch.no_grad():  # as after loading a checkpoint
        for p in scene.model.parameters():
            p.mul_(0.5)
    with pytest.warns(nscl.NsclWarning, match="other weights were loaded"):
        scene.memory.remember([scene.old])
    scene.before = scene.model(scene.old).detach()
    halved = values(scene.model)["0.weight"]
    scene.optimizer.zero_grad()
    scene.optimizer.step()  # nothing has a gradient
    assert torch.equal(values(scene.model)["0.weight"], halved)


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
def test_a_compiled_step_is_protected() -> None:
    scene = protected_scene(lambda p: torch.optim.Adam(p, 1e-2))
    step = torch.compile(scene.optimizer.step, backend="eager")
    for _ in range(3):
        scene.backward()
        step()
    scene.memory.remember([torch.randn(1, 6, dtype=torch.float64)])
    scene.backward()
    step()
    assert scene.moved() < 1e-12
    assert scene.memory.tasks == 2


def test_the_users_own_hooks_run_in_their_order() -> None:
    calls: list[str] = []
    scene = protected_scene()
    scene.protection.remove()
    optimizer, weight = scene.optimizer, scene.model[0].weight

    def note(name: str) -> Callable[..., None]:
        return lambda *_: calls.append(f"{name} {float(weight.detach().sum()):.12g}")

    optimizer.register_step_pre_hook(note("before, early"))
    optimizer.register_step_post_hook(note("after, early"))
    scene.memory.protect(optimizer)
    optimizer.register_step_pre_hook(note("before, late"))
    optimizer.register_step_post_hook(note("after, late"))
    scene.train(1)
    order = [call.rpartition(" ")[0] for call in calls]
    assert order == ["before, early", "before, late", "after, early", "after, late"]
    seen = [call.rpartition(" ")[2] for call in calls]
    assert seen[0] == seen[1]
    assert seen[2] != seen[3]  # between them the step was projected
    assert scene.moved() < 1e-12


SCALED: dict[str, MakeOptimizer] = {
    "plain": lambda p: torch.optim.Adam(p, 1e-2, foreach=False),
    "foreach": lambda p: torch.optim.Adam(p, 1e-2, foreach=True),
    "fused": lambda p: torch.optim.Adam(p, 1e-2, fused=True),
    "fused sgd": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9, fused=True),
}


@pytest.mark.parametrize(
    ("name", "acts_on"), [*((name, "step") for name in SCALED), ("fused", "displacement")]
)
def test_under_a_gradscaler_steps_are_the_same_and_skipped_steps_move_nothing(
    name: str, acts_on: str
) -> None:
    results = []
    model, old = mlp(norm=True), torch.randn(3, 6, dtype=torch.float64)
    for enabled in (False, True):
        scene = protected_scene(
            SCALED[name],
            model=copy.deepcopy(model),
            old=old,
            acts_on=acts_on,
            rule=nscl.Ridge(1.0),
        )
        scaler = torch.amp.GradScaler("cpu", enabled=enabled, init_scale=2.0**12)
        x = torch.randn(8, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
        for i in range(6):
            scene.optimizer.zero_grad()
            broken = enabled and i % 2 == 1
            if i % 2 == 1 and not enabled:
                continue
            loss = scene.model(x).square().mean() * (float("inf") if broken else 1.0)
            scaler.scale(loss).backward()
            before = values(scene.model)
            scaler.step(scene.optimizer)
            scaler.update()
            after = values(scene.model)
            assert all(torch.equal(before[n], after[n]) for n in after) is broken
        results.append(values(scene.model))
    for n, value in results[0].items():
        torch.testing.assert_close(results[1][n], value, rtol=1e-9, atol=1e-12)


def test_an_unscaled_and_clipped_gradient_is_taken_as_it_is() -> None:
    scene = protected_scene(lambda p: torch.optim.Adam(p, 1e-2, fused=True))
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(3):
        scene.optimizer.zero_grad()
        scaler.scale(scene.model(torch.randn(8, 6).double()).square().mean()).backward()
        scaler.unscale_(scene.optimizer)
        nn.utils.clip_grad_norm_(scene.model.parameters(), 0.1)
        scaler.step(scene.optimizer)
        scaler.update()
    assert scene.moved() < 1e-12


def test_several_optimizers_over_one_model() -> None:
    model = mlp()
    old = torch.randn(3, 6, dtype=torch.float64)
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-12))
    first, second = sgd(model[0].parameters()), torch.optim.Adam(model[2].parameters(), 1e-2)
    memory.protect(first)
    memory.protect(second)
    memory.remember([old])
    assert memory.report().optimizers == ("SGD over 2 parameters", "Adam over 2 parameters")
    before, start = model(old).detach(), values(model)
    for i in range(6):
        model.zero_grad()
        model(torch.randn(8, 6).double()).square().mean().backward()
        (first if i % 2 else second).step()
    assert (model(old) - before).abs().max() < 1e-12
    assert all(not torch.equal(start[name], now) for name, now in values(model).items())
