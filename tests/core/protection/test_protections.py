"""All protections of a memory: which optimizers are alive, and the statistics they hold."""

import copy
import gc
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

import nscl
from nscl.errors import StatisticsWarning
from tests.core.protected_scene import (
    Scene,
    mlp,
    protected_scene,
    sgd,
)


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


def pickled(optimizer: Optimizer) -> Optimizer:
    return pickle.loads(pickle.dumps(optimizer))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, copy.copy, pickled])
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


def test_a_layer_without_statistics_to_hold_is_warned_about() -> None:
    model = with_batch_norm()
    model.append(nn.BatchNorm1d(3, track_running_stats=False).double())
    memory = nscl.Memory(model, rule=nscl.Ratio())
    with pytest.warns(StatisticsWarning, match="4 always normalises with the batch"):
        protection = memory.protect(sgd(model.parameters()))
    assert [bool(layer._forward_hooks) for layer in model] == [False, True, False, False, False]
    protection.remove()
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in model)
