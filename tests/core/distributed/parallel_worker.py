"""Runs every scenario on one of several ranks and writes down what came out.

Started by ``parallel_launch.py``, once for all tests: a folder, and the number of the rank.
"""

import copy
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
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
from torch.nn.parallel import DistributedDataParallel

import nscl
from nscl.core.distributed.collectives import (
    any_rank,
    as_on_first_rank,
    from_rank,
    in_lockstep,
    sum_over_ranks,
)
from tests.core.distributed import parallel_models as cases
from tests.core.distributed import parallel_proximal, parallel_sketches
from tests.core.distributed.parallel_models import protected
from tests.core.distributed.parallel_proximal import message, shard

Scenario = Callable[[int, Path], Any]
SCENARIOS: dict[str, Scenario] = {
    **parallel_proximal.SCENARIOS,
    **parallel_sketches.SCENARIOS,
}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def warned(action: Callable[[], Any]) -> list[str]:
    """The warnings of an action."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [str(warning.message) for warning in caught]


@scenario
def collectives(rank: int, folder: Path) -> Any:
    """Each collective with numbers of which every rank has its own."""
    mine = torch.tensor([1.0, 10.0]) * (rank + 1)
    held = [torch.full((2,), float(rank)), torch.full((), float(rank), dtype=torch.float64)]
    with as_on_first_rank(held):
        shared = [tensor.clone() for tensor in held]
    own = [torch.full((2,), float(rank))]
    with suppress(ZeroDivisionError), as_on_first_rank(own):
        raise ZeroDivisionError
    return {
        "sum": sum_over_ranks(mine),
        "mine": mine,
        "any": [any_rank(rank == 1), any_rank(False)],
        "from": [from_rank(mine, source) for source in range(2)],
        "shared": shared,
        "own": own,
        "in step": list(in_lockstep(range(3))),
        "uneven": message(lambda: list(in_lockstep(range(2 + rank)))),
    }


@scenario
def whole_memory(rank: int, folder: Path) -> Any:
    memory, optimizer = protected(cases.build(cases.Branches))
    memory.remember(cases.batches()[rank::2])
    with torch.no_grad():
        for p in memory.model.parameters():
            p.mul_(1.1)
    with pytest.warns(nscl.NsclWarning, match="moved out of the null space"):
        memory.remember(cases.batches()[rank::2])
    del optimizer
    return memory.state_dict()


@scenario
def a_rank_without_data(rank: int, folder: Path) -> Any:
    memory, optimizer = protected(cases.build(cases.Branches))
    memory.remember(cases.batches() if rank == 0 else [])
    none = message(lambda: memory.remember([]))
    del optimizer
    return {"state": memory.state_dict(), "none": none}


@scenario
def an_error_on_one_rank(rank: int, folder: Path) -> Any:
    memory, optimizer = protected(cases.build(cases.Branches))
    memory.model.batch_norm.running_mean.fill_(float(rank))
    mine = cases.batches()[rank::2]
    broken = copy.deepcopy(mine)
    if rank == 1:
        broken[-1]["x"][0, 0] = float("nan")

    def interrupted() -> Any:
        yield mine[0]
        if rank == 0:
            raise nscl.NsclError("the disk is full")

    found = {
        "features": message(lambda: memory.remember(broken)),
        "loader": message(lambda: memory.remember(interrupted())),
        "tasks": memory.tasks,
        "tensors": len(memory.state_dict()["tensors"]),
        "hooks": sum(len(m._forward_hooks) for m in memory.model.modules()),
        "mean": memory.model.batch_norm.running_mean.clone(),
    }
    memory.remember(mine)
    del optimizer
    return {**found, "afterwards": memory.tasks}


@scenario
def different_weights(rank: int, folder: Path) -> Any:
    memory, optimizer = protected(cases.build(cases.Branches))
    with torch.no_grad():
        memory.model.last.weight[0, 0] += 1e-3 * rank
    found = message(lambda: memory.remember(cases.batches()))
    del optimizer
    return {"message": found, "tasks": memory.tasks}


@scenario
def data_parallel(rank: int, folder: Path) -> Any:
    inner = cases.build(cases.Branches)
    model = DistributedDataParallel(inner)
    memory, optimizer = protected(model, statistics="freeze", norms="freeze")
    found = {}

    def train(steps: int) -> None:
        generator = torch.Generator().manual_seed(rank)
        for _ in range(steps):
            x = torch.randn(8, 5, dtype=torch.float64, generator=generator)
            optimizer.zero_grad()
            model(x, use_extra=True).square().mean().backward()
            optimizer.step()

    train(2)  # now every rank has running statistics of its own
    found["before sharing"] = inner.batch_norm.running_mean.clone()
    # Three samples that all batches repeat: something must stay free behind the ReLU.
    few = [{**b, "x": b["x"][:1]} for b in cases.batches()[1:4]]
    memory.remember(few[rank::2])
    inner.eval()
    outputs = [inner(**batch).detach() for batch in few]
    start = cases.whole_values(inner)
    model.train()
    train(3)
    inner.eval()
    found["moved"] = max(
        (inner(**batch) - output).abs().max().item()
        for batch, output in zip(few, outputs, strict=True)
    )
    found["start"], found["values"] = start, cases.whole_values(inner)
    found["mean"] = inner.batch_norm.running_mean.clone()
    found["state"] = memory.state_dict()
    return found


def sharded_training(optimizer: str, acts_on: Any, rank: int) -> Any:
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


for _optimizer in cases.OPTIMIZERS:
    for _acts_on in ("step", "displacement"):

        def _run(rank: int, folder: Path, o: str = _optimizer, a: str = _acts_on) -> Any:
            return sharded_training(o, a, rank)

        SCENARIOS[f"sharded {_optimizer} {_acts_on}"] = _run


@scenario
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


@scenario
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


@scenario
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


@scenario
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


@scenario
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


def main() -> None:
    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view")
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=20),
    )
    found = {}
    for name, function in SCENARIOS.items():
        try:
            found[name] = {"result": function(rank, folder)}
        except Exception:
            found[name] = {"error": traceback.format_exc()}
        torch.save(found, folder / f"{rank}.pt")  # each time: a later one may take all down
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
