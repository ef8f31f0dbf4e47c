"""Where a run computes: device, threads, and the other processes of a torchrun."""

import os
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nscl.training.config import ConfigError
from nscl.training.tally import Tally


def choose_device(name: str) -> torch.device:
    """``auto`` is cuda, then mps, then cpu; asking for what is not there is an error."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    device = torch.device(name)
    there = {"cpu": True, "cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    check = there[device.type]
    if check is not True and not check():  # type: ignore[operator]
        raise ConfigError(f"device {name!r} is not on this machine; --device auto takes what is")
    return device


class Ranks:
    """The processes of one run; a single one outside of torchrun."""

    def __init__(self) -> None:
        self.started = False
        if "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            if not dist.is_initialized():
                dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
                self.started = True
            self.rank, self.count = dist.get_rank(), dist.get_world_size()
        else:
            self.rank, self.count = 0, 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and talks to the user."""
        return self.rank == 0

    def average_gradients(self, parameters: Iterable[nn.Parameter], share: float) -> None:
        """Gradients of the whole batch: the sum over ranks, each weighted by its share of it.

        One flat message per step instead of DistributedDataParallel's buckets: methods run several
        forward and backward passes per step, which its hooks cannot tell apart.
        """
        if self.count == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        if not gradients:
            return
        flat = torch.cat([g.reshape(-1) for g in gradients]).mul_(share)
        dist.all_reduce(flat)
        start = 0
        for gradient in gradients:
            gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
            start += gradient.numel()

    def sum(self, values: Tensor) -> Tensor:
        """Sum of all ranks' figures."""
        if self.count > 1:
            dist.all_reduce(values)
        return values

    def whole(self, tally: Tally) -> Tally:
        """An epoch's figures over all ranks."""
        figures = torch.tensor([tally.loss, tally.hits, tally.seen], dtype=torch.float64)
        loss, hits, seen = self.sum(figures).tolist()
        return Tally(loss, int(hits), int(seen), tally.steps)

    def wait(self) -> None:
        """Until every rank is here."""
        if self.count > 1:
            dist.barrier()

    def close(self) -> None:
        """Leave the group, if it was joined here."""
        if self.started:
            dist.destroy_process_group()
