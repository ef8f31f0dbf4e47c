"""Draws of several processes that together are those of one.

All processes of a run have the same random numbers, but each its own rows of a batch. Drawing for
its rows only, every process would draw the same; so all draw for the whole batch, and take their
rows.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from nscl.core.ranks import is_distributed, sum_over_ranks


def whole_batch(count: int) -> tuple[int, slice]:
    """How many rows a batch has of which ``count`` are this process's, and which ones.

    >>> whole_batch(3)
    (3, slice(None, None, None))
    """
    if not is_distributed():
        return count, slice(None)
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    return int(sum_over_ranks(torch.tensor([float(count)])).item()), mine


def uniform_like(rows: Tensor) -> Tensor:
    """Numbers in [0, 1) for rows of a batch, from torch's generator of the CPU, which a run saves.

    >>> uniform_like(torch.zeros(2, 3)).shape
    torch.Size([2, 3])
    """
    total, mine = whole_batch(len(rows))
    return torch.rand(total, *rows.shape[1:])[mine].to(rows.device)
