"""Random draws of several processes that together are the draws of one.

All processes of a run have the same random numbers, but each has its own rows of a batch: rows
``rank, rank + ranks, ...``. If a process drew for its rows only, every process would draw the same.
So all of them draw for the whole batch, and each keeps its rows.
"""

import torch
from torch import Tensor

from nscl.core.distributed.collectives import rank_and_world, sum_over_ranks


def whole_batch(count: int) -> tuple[int, slice]:
    """The number of rows of a batch of which this process has ``count``, and which rows it has.

    >>> whole_batch(3)
    (3, slice(0, None, 1))
    """
    rank, ranks = rank_and_world()
    total = count if ranks == 1 else int(sum_over_ranks(torch.tensor([float(count)])).item())
    return total, slice(rank, None, ranks)


def uniform_like(rows: Tensor) -> Tensor:
    """Numbers in [0, 1) for rows of a batch, from torch's CPU generator, which a run saves.

    >>> uniform_like(torch.zeros(2, 3)).shape
    torch.Size([2, 3])
    """
    total, mine = whole_batch(len(rows))
    return torch.rand(total, *rows.shape[1:])[mine].to(rows.device)


def drawn_rows(available: int, count: int) -> Tensor:
    """``count`` of the available rows, drawn with replacement; each process draws others.

    >>> drawn_rows(10, 4).shape
    torch.Size([4])
    """
    rank, ranks = rank_and_world()
    return torch.randint(available, (count * ranks,))[rank::ranks]
