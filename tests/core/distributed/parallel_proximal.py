"""Scenarios of both factors, of proximal rules and of recall, for ``parallel_worker.py``."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

import nscl
from tests.core.distributed import parallel_models as cases

Scenario = Callable[[int, Path], Any]
SCENARIOS: dict[str, Scenario] = {}


def message(action: Callable[[], Any]) -> str:
    """The message of an action that must fail."""
    try:
        action()
    except nscl.NsclError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def shard(model: nn.Module) -> nn.Module:
    """Most layers by themselves; the last belong to the root, which stays gathered for longer."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for child in list(model.children())[:-2]:
        fully_shard(child, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def shard_at_once(model: nn.Module) -> nn.Module:
    """All of a model by its root: everything stays gathered between forward and backward."""
    return fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "ddp": DistributedDataParallel,
    "fsdp": shard,
    "fsdp at once": shard_at_once,
}


def two_tasks(wrapper: str, rule: str, every: int, rank: int, folder: Path) -> Any:
    model = WRAPPERS[wrapper](cases.build(cases.Reader))
    memory, optimizer = cases.protected(model, rule=cases.PROXIMAL[rule], every=every)
    return cases.two_tasks(model, memory, optimizer, slice(rank, None, 2))


for _wrapper, _every in (("ddp", 1), ("ddp", 3), ("fsdp", 2), ("fsdp at once", 2)):
    for _rule in cases.PROXIMAL:
        SCENARIOS[f"{_wrapper} {_rule} {_every}"] = partial(two_tasks, _wrapper, _rule, _every)


def looked_at(wrapper: str, rank: int, folder: Path) -> Any:
    model = WRAPPERS[wrapper](cases.build(cases.Reader))
    memory, optimizer = cases.protected(model, rule=cases.PROXIMAL["penalty"], every=4)
    found = cases.looked_at(model, memory, optimizer, slice(rank, None, 2))
    if wrapper != "ddp":
        model.reshard()
    return {**found, "values": cases.whole_values(memory.model)}


def left_behind(model: nn.Module) -> dict[str, Any]:
    """All that a pass could leave on a model and must not."""
    groups = [
        group
        for module in model.modules()
        if isinstance(module, FSDPModule)
        for group in module._get_fsdp_state()._fsdp_param_groups
    ]
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return {
        "hooks": [len(getattr(module, name)) for module in model.modules() for name in hooks],
        "gradients": sum(p.grad is not None for p in model.parameters()),
        "whole": sum(not hasattr(p, "placements") for p in model.parameters()),
        "frozen": [name for name, p in model.named_parameters() if not p.requires_grad],
        "gathered": sum(
            p._unsharded_param.untyped_storage().size() for g in groups for p in g.fsdp_params
        ),
        "states": sorted({group._training_state.name for group in groups}),
    }


def sharded_norms(rank: int, folder: Path) -> Any:
    """Anchors of sharded norm layers, where the rule needs nothing of the outputs."""
    model = shard(cases.norm_stack())
    memory, optimizer = cases.protected(model, optimizer="adamw", acts_on="displacement")
    model[1].bias.requires_grad_(False)
    with torch.no_grad():
        model(cases.rows())  # FSDP2 makes itself ready
    model.reshard()
    before = left_behind(model)
    memory.remember(cases.row_batches()[rank::2])
    found = {"before": before, "after": left_behind(model), "state": memory.state_dict()}
    model[1].bias.requires_grad_(True)
    for _ in range(4):
        optimizer.zero_grad()
        model(cases.rows().flip(1) * 2).square().sum().backward()
        optimizer.step()
    return {**found, "values": cases.whole_values(model)}


def data_on_one_rank(rank: int, folder: Path) -> Any:
    model = cases.build(cases.Reader)
    memory, optimizer = cases.protected(model, rule=cases.PROXIMAL["penalty"])
    memory.remember(cases.sentences(0) if rank else [], loss=cases.squares)
    del optimizer
    return memory.state_dict()


def problems_on_one_rank(rank: int, folder: Path) -> Any:
    """A backward pass needs all ranks, so none may go on when one has a problem."""
    model = shard(cases.build(cases.Reader))
    memory, optimizer = cases.protected(model, rule=cases.PROXIMAL["penalty"], every=2)
    part, one = slice(rank, None, 2), slice(1)

    def infinite(output: Tensor, batch: Tensor) -> Tensor:
        return output.square().mean() * (float("inf") if rank else 1.0)

    def steep(output: Tensor, batch: Tensor) -> Tensor:  # finite, but not its gradient
        return (output * 0.0).abs().sqrt().sum() if rank else output.square().mean()

    broken = [tokens + 100 for tokens in cases.sentences(0)[one]]
    found = {
        "loss": message(lambda: memory.remember(cases.sentences(0)[part], loss=infinite)),
        "gradient": message(lambda: memory.remember(cases.sentences(0)[one], loss=steep)),
        "forward": message(lambda: memory.remember(broken)),
        "left": left_behind(model),
        "tasks": memory.tasks,
    }
    return {**found, **cases.two_tasks(model, memory, optimizer, part)}


def recalled(wrapper: str, rank: int, folder: Path) -> Any:
    """Old answers beside new ones, also in the middle of a step; nothing else may be moved."""
    model = WRAPPERS[wrapper](cases.build(cases.Branches))
    memory, optimizer = cases.protected(model, rule=cases.PROXIMAL["penalty"], every=2)
    x = cases.rows() + rank
    _distil(model, optimizer, x, lambda: torch.zeros(len(x), 3).double())
    memory.remember([cases.rows()[rank::2]], forward=lambda m, b: m(b, use_extra=True))
    twin = cases.twin(memory.model)
    for _ in range(3):
        _distil(model, optimizer, x, lambda: twin(x, use_extra=True))
    before = cases.twin(memory.model).state_dict()
    recall = partial(memory.recall, x, use_extra=True)
    found = {"recalled": recall(), "expected": twin(x, use_extra=True), "before": before}
    found["after"] = cases.twin(memory.model).state_dict()
    found["modes"] = all(module.training for module in model.modules())
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    found["same parameters"] = held == {id(p) for p in model.parameters()}
    found["gradients"] = [_gradients(model, x, old) for old in (recall, partial(twin, x, True))]
    forgotten = memory.forgetting(x, forward=lambda m, b: m(b, use_extra=True))
    found["forgetting"] = forgotten.to_dict()
    found["now"] = cases.twin(memory.model)(x, use_extra=True)
    found["wrong"] = message(lambda: _raising(memory.recall, x[:, :2]))
    found["again"] = recall()
    return found


def _raising(call: Callable[[Tensor], Any], x: Tensor) -> None:
    try:
        call(x)
    except RuntimeError as problem:
        raise nscl.NsclError(str(problem)) from problem


def _gradients(model: nn.Module, x: Tensor, old: Callable[[], Tensor]) -> dict[str, Tensor]:
    model.zero_grad()
    new = model(x, use_extra=True)
    (new.square().mean() + nscl.distillation(new, old())).backward()
    grads = {n.removeprefix("module."): p.grad for n, p in model.named_parameters()}
    return {n: (g.full_tensor() if hasattr(g, "full_tensor") else g) for n, g in grads.items()}


def _distil(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, old: Callable[[], Tensor]
) -> None:
    optimizer.zero_grad()
    new = model(x, use_extra=True)
    loss = F.cross_entropy(new, torch.arange(len(x)) % 3) + nscl.distillation(new, old())
    loss.backward()
    optimizer.step()


SCENARIOS |= {"sharded norms": sharded_norms, "data on one rank": data_on_one_rank}
SCENARIOS |= {"problems on one rank": problems_on_one_rank}
SCENARIOS |= {f"looked at {name}": partial(looked_at, name) for name in WRAPPERS}
SCENARIOS |= {f"recall {name}": partial(recalled, name) for name in WRAPPERS}
