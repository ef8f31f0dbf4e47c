"""Step hooks on an optimizer: any optimizer, any loop, on and off without a trace."""

import copy
import gc
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim import lr_scheduler as schedules

import nscl
from nscl.errors import ProtectionError, UnsupportedError
from tests.core.protected_scene import (
    EXACT,
    Scene,
    dense_projectors,
    furthest,
    mlp,
    project_by_hand,
    protected_scene,
    sgd,
    stacked,
    values,
)

Loop = Callable[[nn.Sequential, Optimizer, Callable[[], None]], None]


def in_groups(model: nn.Sequential) -> list[dict[str, Any]]:
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    weights = [p for name, p in model.named_parameters() if name.endswith("weight")]
    return [{"params": weights, "lr": 0.02}, {"params": biases, "weight_decay": 0.5}]


def adam(model: nn.Sequential, **options: Any) -> Optimizer:
    return torch.optim.Adam(model.parameters(), 1e-2, weight_decay=1e-2, **options)


OPTIMIZERS: dict[str, Callable[[nn.Sequential], Optimizer]] = {
    "groups": lambda m: torch.optim.SGD(in_groups(m), 0.05, momentum=0.9, nesterov=True),
    "groups of adamw": lambda m: torch.optim.AdamW(in_groups(m), 1e-2),
    "adam": adam,
    "foreach": lambda m: adam(m, foreach=True),
    "fused": lambda m: adam(m, fused=True),
    "maximize": lambda m: torch.optim.SGD(m.parameters(), 0.05, maximize=True),
}


def loss_of(model: nn.Module, seed: int) -> Tensor:
    x = torch.randn(8, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return model(x).square().mean()


def plain(model: nn.Sequential, optimizer: Optimizer, step: Callable[[], None]) -> None:
    for i in range(5):
        optimizer.zero_grad()
        loss_of(model, i).backward()
        step()


def accumulating(model: nn.Sequential, optimizer: Optimizer, step: Callable[[], None]) -> None:
    for i in range(9):
        loss_of(model, i).backward()
        if i % 3 == 2:
            step()
            optimizer.zero_grad(set_to_none=False)


def one_cycle(model: nn.Sequential, optimizer: Optimizer, step: Callable[[], None]) -> None:
    schedule = schedules.OneCycleLR(optimizer, max_lr=0.1, total_steps=6)
    plain(model, optimizer, lambda: (step(), schedule.step()))


def chained(model: nn.Sequential, optimizer: Optimizer, step: Callable[[], None]) -> None:
    first = schedules.ExponentialLR(optimizer, 0.5)
    both = schedules.ChainedScheduler([first, schedules.StepLR(optimizer, 2)], optimizer)
    plain(model, optimizer, lambda: (step(), both.step()))


LOOPS: dict[str, Loop] = {f.__name__: f for f in (plain, accumulating, one_cycle, chained)}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_equals_projecting_every_step_by_hand(optimizer: str, loop: str) -> None:
    old, first = torch.randn(3, 6, dtype=torch.float64), mlp()
    second = copy.deepcopy(first)
    mine, theirs = OPTIMIZERS[optimizer](first), OPTIMIZERS[optimizer](second)
    memory = nscl.Memory(first, rule=EXACT)
    memory.protect(mine)
    memory.remember([old])
    projectors = dense_projectors(second, old)

    def by_hand() -> None:
        before = {layer: stacked(layer) for layer in projectors}
        theirs.step()
        project_by_hand(projectors, before)

    outputs, start = first(old).detach(), values(first)
    LOOPS[loop](first, mine, lambda: mine.step())  # looked up late: schedulers replace it
    LOOPS[loop](second, theirs, by_hand)
    assert furthest(values(first), values(second)) < 1e-10
    assert furthest(values(first), start) > 1e-3
    assert (first(old) - outputs).abs().max() < 1e-12


def test_a_closure_gives_its_loss_and_is_protected() -> None:
    scene = protected_scene()

    def closure() -> Tensor:
        scene.optimizer.zero_grad()
        loss = loss_of(scene.model, 0)
        loss.backward()
        return loss

    expected = loss_of(scene.model, 0).item()
    assert scene.optimizer.step(closure).item() == expected
    assert scene.optimizer.step(closure=closure).item() < expected
    assert scene.moved() < 1e-12


def test_parameters_that_come_later_are_free_until_remembered() -> None:
    scene = protected_scene()
    scene.model.append(nn.Linear(3, 2).double())
    head = scene.model[-1]
    scene.optimizer.add_param_group({"params": head.parameters(), "lr": 0.1})
    features = scene.model[:-1](scene.old).detach()
    before = head(features).detach()
    scene.train()
    assert (scene.model[:-1](scene.old) - features).abs().max() < 1e-12
    assert (head(features) - before).abs().max() > 1e-3
    scene.memory.remember([scene.old])
    before = scene.model(scene.old).detach()
    scene.train()
    assert (scene.model(scene.old) - before).abs().max() < 1e-12


def test_remembering_twice_in_a_row_never_leaves_an_old_plan() -> None:
    # States come and go, and Python gives their addresses away again.
    scene = protected_scene()
    for _ in range(60):
        state = scene.memory.state_dict()
        scene.train(1)
        scene.memory.remember([torch.randn(2, 6, dtype=torch.float64)])
        fresh = torch.randn(1, 6, dtype=torch.float64)
        scene.memory.remember([fresh])
        before = scene.model(fresh).detach()
        scene.train(1)
        assert (scene.model(fresh) - before).abs().max() < 1e-12
        scene.memory.load_state_dict(state)  # else nothing would be free soon


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


def test_optimizers_that_are_gone_leave_nothing_behind() -> None:
    scene = protected_scene()
    for _ in range(3):  # a new one for each epoch, say
        scene.memory.protect(sgd(scene.model.parameters()))
    assert len(scene.memory._protections.all) == 2


def test_a_report_says_how_many_of_an_optimizers_parameters_are_protected() -> None:
    model, hidden = mlp(), torch.nn.Linear(2, 2)  # the second belongs to no module
    memory = nscl.Memory.adam_nscl(model)
    optimizer = sgd([*model.parameters(), *hidden.parameters()])
    memory.protect(optimizer)
    assert memory.report().optimizers == ("SGD over 6 parameters, 4 of them protected",)


def test_a_protection_that_is_gone_does_not_count() -> None:
    scene = protected_scene()
    scene.optimizer._optimizer_step_pre_hooks.clear()  # as torch drops them from a copy
    assert nscl.Memory.adam_nscl(scene.model).protect(scene.optimizer).active


def test_as_a_context_it_ends_with_its_block() -> None:
    scene = protected_scene()
    with scene.protection as protection:
        scene.train()
        assert protection.active
        assert scene.moved() < 1e-12
    assert not scene.protection.active
    scene.train()
    assert scene.moved() > 1e-3


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


def pickled(optimizer: Optimizer) -> Optimizer:
    return pickle.loads(pickle.dumps(optimizer))


def saved(optimizer: Optimizer) -> Optimizer:
    buffer = io.BytesIO()
    torch.save(optimizer, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, copy.copy, pickled, saved])
def test_a_copy_has_lost_its_protection_and_that_is_noticed(
    duplicate: Callable[[Optimizer], Optimizer],
) -> None:
    scene = protected_scene()
    assert scene.memory.report().optimizers == ("SGD over 4 parameters",)
    scene.optimizer = duplicate(scene.optimizer)
    gc.collect()
    report = scene.memory.report()
    assert report.optimizers == ()
    assert "no optimizer is protected" in str(report)
    with pytest.warns(nscl.NsclWarning, match="copies lose their hooks"):
        scene.memory.remember([scene.old])


def test_a_recreated_optimizer_is_noticed_and_can_be_protected() -> None:
    scene = protected_scene()
    scene.optimizer = torch.optim.Adam(scene.model.parameters())
    gc.collect()
    with pytest.warns(nscl.NsclWarning, match="re-created"):
        scene.memory.remember([scene.old])
    scene.memory.protect(scene.optimizer)
    assert scene.memory.report().optimizers == ("Adam over 4 parameters",)
    scene.train()
    assert scene.moved() < 1e-12


def test_a_protected_optimizer_can_die() -> None:
    scene = protected_scene()
    died = []
    scene.optimizer.register_step_post_hook(lambda *_: died)
    scene.train(1)
    other = sgd(scene.model.parameters())
    scene.memory.protect(other)
    scene.optimizer = other
    gc.collect()
    assert repr(scene.protection) == "Protection(removed)"
    assert scene.memory.report().optimizers == ("SGD over 4 parameters",)
    scene.train()
    assert scene.moved() < 1e-12


def test_loading_an_optimizers_state_keeps_the_protection() -> None:
    scene = protected_scene(lambda p: torch.optim.Adam(p, 1e-2))
    scene.train()
    scene.optimizer.load_state_dict(copy.deepcopy(scene.optimizer.state_dict()))
    assert scene.protection.active
    scene.train()
    assert scene.moved() < 1e-12


def hooks_of(scene: Scene) -> list[Any]:
    modules = list(scene.model.modules())
    dictionaries = [d for m in modules for k, d in sorted(vars(m).items()) if "hooks" in k]
    dictionaries += [d for k, d in sorted(vars(scene.optimizer).items()) if "hooks" in k]
    return [list(d.items()) for d in dictionaries if isinstance(d, dict)]


def with_batch_norm() -> nn.Sequential:
    layers = (nn.Linear(6, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 3))
    return nn.Sequential(*layers).double()


def test_removing_leaves_every_hook_as_it_was() -> None:
    scene = protected_scene(model=with_batch_norm(), statistics="freeze")
    scene.protection.remove()
    scene.optimizer.register_step_pre_hook(lambda *_: None)
    scene.model[1].register_forward_hook(lambda *_: None)
    found = hooks_of(scene)
    other = sgd(scene.model.parameters())
    first, second = scene.memory.protect(scene.optimizer), scene.memory.protect(other)
    scene.train()
    assert len(scene.optimizer._optimizer_step_pre_hooks) == 2
    first.remove()
    assert hooks_of(scene) != found  # the other optimizer still needs the statistics held
    second.remove()
    assert hooks_of(scene) == found
    assert not other._optimizer_step_pre_hooks
    assert not other._optimizer_step_post_hooks


def test_held_statistics_reach_layers_added_later() -> None:
    scene = protected_scene(model=with_batch_norm(), statistics="freeze")
    scene.model.append(nn.BatchNorm1d(3).double())
    scene.optimizer.add_param_group({"params": scene.model[-1].parameters()})
    scene.model.train()
    scene.train()
    assert scene.model[-1].running_mean.abs().max() > 1e-3  # not remembered yet
    scene.memory.remember([scene.old])
    held = scene.model[-1].running_mean.clone(), scene.model[1].running_mean.clone()
    scene.train()
    assert all(layer.training for layer in scene.model)
    assert torch.equal(scene.model[-1].running_mean, held[0])
    assert torch.equal(scene.model[1].running_mean, held[1])


def test_a_refused_protection_leaves_nothing_behind() -> None:
    model = with_batch_norm()
    model.append(nn.BatchNorm1d(3, track_running_stats=False).double())
    memory = nscl.Memory(model, rule=nscl.Ratio(), statistics="freeze")
    optimizer = sgd(model.parameters())
    with pytest.raises(UnsupportedError, match="track_running_stats=False"):
        memory.protect(optimizer)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model)
    assert not optimizer._optimizer_step_pre_hooks
    assert memory.report().optimizers == ()
