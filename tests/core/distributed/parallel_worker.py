"""Runs every scenario on one of several ranks and writes down what came out.

Started by ``parallel_launch.py``, once for all tests: a folder, and the number of the rank.
"""

import copy
import sys
import traceback
import warnings
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
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
from tests.core.distributed import parallel_proximal, parallel_sharded, parallel_sketches
from tests.core.distributed.parallel_models import protected
from tests.core.distributed.parallel_proximal import Scenario, message

SCENARIOS: dict[str, Scenario] = {
    **parallel_proximal.SCENARIOS,
    **parallel_sharded.SCENARIOS,
    **parallel_sketches.SCENARIOS,
}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


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


def count_hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) for module in model.modules())


@scenario
def an_error_on_one_rank(rank: int, folder: Path) -> Any:
    memory, optimizer = protected(cases.build(cases.Branches))
    memory.model.batch_norm.running_mean.fill_(float(rank))
    hooks = count_hooks(memory.model)
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
        "hooks": count_hooks(memory.model) - hooks,
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
