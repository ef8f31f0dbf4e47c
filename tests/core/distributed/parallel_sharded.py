"""Scenarios of FSDP2's shards, for ``parallel_worker.py``."""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import nscl
from tests.core.distributed import parallel_models as cases
from tests.core.distributed.parallel_models import protected
from tests.core.distributed.parallel_proximal import Scenario, message, shard


def warned(action: Callable[[], Any]) -> list[str]:
    """The warnings of an action."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [str(warning.message) for warning in caught]


def sharded_training(optimizer: str, acts_on: Any, rank: int, folder: Path) -> Any:
    model = shard(cases.build(cases.Everything))
    memory, opt = protected(model, acts_on=acts_on, optimizer=optimizer)
    memory.remember([cases.old_tokens()[rank]])
    memory.remember([cases.old_tokens()[rank]])  # twice: nothing in between scatters anything
    before = [model(tokens).detach() for tokens in cases.old_tokens()]
    cases.train(model, opt, 1)
    opt.zero_grad()
    model(cases.new_tokens()).square().sum().backward()
    with CommDebugMode() as talk:
        opt.step()
    model(cases.new_tokens())  # gathers the root's parameters and leaves them so
    cases.train(model, opt, 1)
    after = [model(tokens).detach() for tokens in cases.old_tokens()]
    return {
        "values": cases.whole_values(model),
        "moved": max((a - b).abs().max().item() for a, b in zip(after, before, strict=True)),
        "talk": talk.get_total_counts(),
        "largest shard": max(p.to_local().numel() for p in opt.param_groups[0]["params"]),
    }


def sharded_forgetting_and_files(rank: int, folder: Path) -> Any:
    model = shard(cases.build(cases.Everything))
    memory, optimizer = protected(model, acts_on="displacement", rule=nscl.Ridge(1.0))
    memory.remember([cases.old_tokens()[rank]])
    cases.train(model, optimizer)
    report = memory.report().to_dict() if rank == 0 else {}  # one rank alone may ask
    forgetting = memory.forgetting()
    memory.save(folder / "memory.safetensors")
    dist.barrier()
    halfway = cases.whole_values(model)
    own = warned(lambda: nscl.Memory.load(folder / "memory.safetensors", model))
    other = shard(cases.build(cases.Everything))
    with torch.no_grad():  # rows that live on one rank only
        local = other.get_parameter("linear.weight").to_local()
        local += float(rank)
    others = warned(lambda: nscl.Memory.load(folder / "memory.safetensors", other))
    fresh = shard(cases.build(cases.Everything))
    loaded = nscl.Memory.load(folder / "memory.safetensors", fresh)
    opt = cases.OPTIMIZERS["sgd"](fresh.parameters())
    loaded.protect(opt)
    cases.train(fresh, opt)
    merged = message(lambda: memory.merge(loaded))
    return {
        "drift": [layer.drift for layer in forgetting.layers],
        "names": [layer["name"] for layer in report.get("layers", [])],
        "bytes": memory.nbytes["reference"],
        "halfway": halfway,
        "loaded": cases.whole_values(fresh),
        "merged": merged,
        "tasks": memory.tasks,
        "warned": (own, others),
    }


def sharded_evaluation_before_a_step(rank: int, folder: Path) -> Any:
    model = shard(cases.build(cases.Everything))
    memory, optimizer = protected(model)
    memory.remember([cases.old_tokens()[rank]])
    before = [model(tokens).detach() for tokens in cases.old_tokens()]
    for _ in range(2):
        optimizer.zero_grad()
        model(cases.new_tokens()).square().sum().backward()
        model(cases.new_tokens())  # gathered copies now stand where parameters stood
        optimizer.step()
    model.reshard()
    after = [model(tokens).detach() for tokens in cases.old_tokens()]
    return max((a - b).abs().max().item() for a, b in zip(after, before, strict=True))


def sharded_and_uneven(rank: int, folder: Path) -> Any:
    model = shard(cases.build(cases.Everything))
    memory, optimizer = protected(model)
    first = cases.old_tokens()[0]
    plain = shard(cases.norm_stack())
    rows, (other, opt) = cases.rows(), protected(plain, norms="train")
    nans = rows.clone()
    nans[0, 0] = float("nan")
    found = {
        "fewer": message(lambda: memory.remember([first] * (3 - rank))),
        "empty": message(lambda: memory.remember([first[: 1 - rank]])),
        "none": message(lambda: memory.remember([])),
        "nan": message(lambda: other.remember([rows, nans if rank else rows])),
        "tasks": memory.tasks + other.tasks,
    }
    memory.remember([first])
    del optimizer, opt
    return {**found, "afterwards": memory.tasks}


def what_cannot_be_sharded(rank: int, folder: Path) -> Any:
    found = {}
    transposed = nn.Sequential(nn.ConvTranspose1d(4, 3, 2), nn.Conv1d(3, 2, 1)).double()
    separate = nn.MultiheadAttention(4, 2, kdim=3, vdim=3).double()
    x = torch.ones(2, 4, 5, dtype=torch.float64)
    inputs = {"transposed": (x,), "separate": (x.mT, x.mT[..., :3], x.mT[..., :3])}
    for name, model in (("transposed", transposed), ("separate", separate)):
        for p in model.parameters():
            dist.broadcast(p.data, 0)
        before = cases.whole_values(model)
        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        memory, optimizer = protected(model)
        memory.remember([0], forward=lambda m, _, name=name: m(*inputs[name]))
        out = model(*inputs[name])
        (out if name == "transposed" else out[0]).sum().backward()
        found[name] = message(optimizer.step)
        after = cases.whole_values(model)
        found[f"{name} moved"] = max((after[n] - before[n]).abs().max().item() for n in after)
    pair = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4)).double()
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    parallel = parallelize_module(pair, init_device_mesh("cpu", (dist.get_world_size(),)), plan)
    memory, optimizer = protected(parallel, rule=nscl.Penalty(1.0))
    found["parallel layers"] = message(lambda: memory.remember([cases.rows()]))
    return found


def remembered_before_sharding(rank: int, folder: Path) -> Any:
    """Norm anchors need whole gradients; afterwards each rank pulls at its rows."""
    model = cases.norm_stack()
    memory, optimizer = protected(model, acts_on="displacement")
    memory.remember([cases.rows()])
    del optimizer
    shard(model)
    opt = cases.OPTIMIZERS["adamw"](model.parameters())
    memory.protect(opt)
    for _ in range(4):
        opt.zero_grad()
        model(cases.rows().flip(1) * 2).square().sum().backward()
        own = {n: p.grad.full_tensor() for n, p in model.named_parameters()}
        opt.step()
    kept = all(torch.equal(p.grad.full_tensor(), own[n]) for n, p in model.named_parameters())
    return {"values": cases.whole_values(model), "gradients kept": kept}


SCENARIOS: dict[str, Scenario] = {
    f"sharded {optimizer} {acts_on}": partial(sharded_training, optimizer, acts_on)
    for optimizer in cases.OPTIMIZERS
    for acts_on in ("step", "displacement")
}
SCENARIOS |= {
    scenario.__name__: scenario
    for scenario in (
        sharded_forgetting_and_files,
        sharded_evaluation_before_a_step,
        sharded_and_uneven,
        what_cannot_be_sharded,
        remembered_before_sharding,
    )
}
