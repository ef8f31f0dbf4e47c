"""Where a run computes: device, threads, and the other processes of a torchrun."""

import os
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nscl.core.distributed.collectives import max_over_ranks, rank_and_world, sum_over_ranks
from nscl.models.norms import layers_with_statistics
from nscl.training.config.schema import ConfigError
from nscl.training.display.tally import Tally


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
        is_one_of_several = "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1
        if is_one_of_several and not dist.is_initialized():
            _join()
            self.started = True
        self.rank, self.count = rank_and_world()

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def average_gradients(self, parameters: Iterable[nn.Parameter], share: float) -> None:
        """Gradients of the full batch: the sum over ranks, each weighted by its share of it.

        One flat message per step instead of DistributedDataParallel's buckets: methods run several
        forward and backward passes per step, which its hooks cannot distinguish. A gradient that
        only some ranks have (a head that no image of the others belongs to) counts as zero there;
        one that no rank has stays None, and optimizers skip it.
        """
        if self.count == 1:
            return
        learned = list(parameters)
        parts = [torch.zeros_like(p) if p.grad is None else p.grad * share for p in learned]
        there = parts[0].new_tensor([p.grad is not None for p in learned])
        flat = torch.cat([*(part.reshape(-1) for part in parts), there])
        dist.all_reduce(flat)
        *sums, there = flat.split([*(p.numel() for p in learned), len(learned)])
        for parameter, gradient, found in zip(learned, sums, there.tolist(), strict=True):
            if found:
                parameter.grad = gradient.view_as(parameter).to(parameter.dtype, copy=True)

    def share_buffers(self, networks: Iterable[nn.Module]) -> None:
        """Give all ranks the same buffers: the mean of running statistics, else the first rank's.

        Every rank updates its statistics with its own rows of each batch. The update is linear in
        the batch's mean and variance, so the mean over ranks is what full batches would give: the
        mean of the parts' means is the mean of all rows, and the variance of a part is unbiased.
        The first rank's alone, which DistributedDataParallel takes, would leave out the others.
        """
        if self.count == 1:
            return
        means, others = _buffers(networks)
        if not means and not others:
            return
        shares = [t.double() / self.count for t in means]
        shares += [t.double() if self.is_first else t.double().zero_() for t in others]
        flat = torch.cat([share.reshape(-1) for share in shares])
        dist.all_reduce(flat)
        buffers = [*means, *others]
        for buffer, values in zip(buffers, flat.split([b.numel() for b in buffers]), strict=True):
            buffer.copy_(values.view_as(buffer))

    def sum(self, values: Tensor) -> Tensor:
        """Sum of all ranks' figures."""
        return sum_over_ranks(values)

    def total(self, tally: Tally) -> Tally:
        """An epoch's figures over all ranks."""
        figures = torch.tensor([tally.loss, tally.hits, tally.seen], dtype=torch.float64)
        loss, hits, seen = self.sum(figures).tolist()
        return Tally(loss, int(hits), int(seen), tally.steps)

    def largest(self, value: int) -> int:
        """The largest of all ranks' numbers; every rank must ask."""
        return max_over_ranks(value)

    def wait(self) -> None:
        """Until every rank is here."""
        if self.count > 1:
            dist.barrier()

    def close(self) -> None:
        """Leave the group, if it was joined here."""
        if self.started:
            dist.destroy_process_group()


def _join() -> None:
    """Join torchrun's group: gradients travel between GPUs, figures between processors."""
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")


def _buffers(networks: Iterable[nn.Module]) -> tuple[list[Tensor], list[Tensor]]:
    """Running means and variances, and all other buffers."""
    means: list[Tensor] = []
    others: list[Tensor] = []
    for network in networks:
        layers = layers_with_statistics(network).values()
        running = {id(t) for layer in layers for t in (layer.running_mean, layer.running_var)}
        for buffer in network.buffers():
            (means if id(buffer) in running else others).append(buffer)
    return means, others
