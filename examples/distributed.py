"""Several processes: each remembers its part of the data, all get the memory of the whole.

torchrun --nproc-per-node 2 examples/distributed.py        a few seconds on two cores
DDP (a copy of the model on every rank), then FSDP2 (every rank holds some rows of each weight). In
both cases old outputs should move by less than 1e-5, and all ranks print the same.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import nscl


def wrapped(model: nn.Module, how: str) -> nn.Module:
    if how == "DDP":
        return DistributedDataParallel(model)
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return model


def main(how: str) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same model and the same data everywhere ...
    model = wrapped(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4)), how)
    old, new, labels = torch.randn(16, 32), torch.randn(64, 32), torch.randint(0, 4, (64,))

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)  # after wrapping, as always
    memory = nscl.Memory(model, rule=nscl.Tolerance(1e-6))
    memory.protect(optimizer)
    report = memory.remember([old[rank::world]])  # ... of which each rank remembers its part
    before = model(old).detach()
    for _ in range(50):
        optimizer.zero_grad()
        logits = model(new[rank::world])
        nn.functional.cross_entropy(logits, labels[rank::world]).backward()
        optimizer.step()
    moved = (model(old) - before).abs().max().item()
    drift = memory.forgetting().total.relative  # gathers sharded weights: every rank must ask
    free = [layer.free for layer in report.layers]
    line = f"{how}, rank {rank}: free {free}, old outputs moved {moved:.1e}, drift {drift:.1e}\n"
    print(line, end="")  # in one piece, or the lines of two ranks may mix


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for way in ("DDP", "FSDP2"):
        main(way)
    dist.barrier()  # a rank that leaves first would cut the others' last messages off
    dist.destroy_process_group()
