"""What all ranks have summed up of one layer, as one covariance; every rank must call this.

Full sums are added by an all-reduce. Sketches are merged in the order of the ranks, by every rank
alike, so two ranks have what one process has that merges the two parts.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from nscl.core.covariance.covariance import Covariance
from nscl.core.covariance.low_rank import Sketch, is_sketched
from nscl.core.covariance.observations import TokenCounter
from nscl.core.covariance.packed import packed_shape
from nscl.core.covariance.sharing.shared_sums import Sums
from nscl.core.covariance.sketch_accumulator import SketchAccumulator
from nscl.core.covariance.sketched_covariance import SketchedCovariance
from nscl.core.distributed.collectives import (
    from_rank,
    is_distributed,
    rank_and_world,
    sum_over_ranks,
)


def covariance_over_ranks(
    mine: Sums | None, *, groups: int, width: int, rank: int | None, rows: int, noise: float = 0.0
) -> Covariance:
    """The covariance of ``rows`` rows on all ranks; a rank may have seen none of them."""
    if rank is not None and is_sketched(width, rank):
        sketch = mine.sketch() if isinstance(mine, SketchAccumulator) else None
        empty = Sketch.empty(groups, width, rank)
        return SketchedCovariance.of(merge_over_ranks(sketch or empty), rows)
    if isinstance(mine, SketchAccumulator):
        raise TypeError("a layer that is not wider than the rank is not sketched")
    zeros = torch.zeros(packed_shape(groups, width), dtype=torch.float64, device="cpu")
    return Covariance(sum_over_ranks(mine.total() if mine else zeros), rows, 1, noise)


def token_counts_over_ranks(mine: Sums | None, *, tokens: int, rows: int) -> Covariance:
    """How often each token was seen on all ranks."""
    counter = mine if isinstance(mine, TokenCounter) else TokenCounter(tokens)
    return Covariance(sum_over_ranks(counter.total()), rows, 1)


def same_on_all_ranks(labels: Sequence[int]) -> list[tuple[int, ...]]:
    """Labels that are equal only where they are equal on every rank."""
    rank, world = rank_and_world()
    table = torch.zeros(world, len(labels), dtype=torch.float64, device="cpu")
    table[rank] = torch.tensor(labels, dtype=torch.float64, device="cpu")
    return [tuple(map(int, column)) for column in sum_over_ranks(table).T.tolist()]


def merge_over_ranks(mine: Sketch) -> Sketch:
    """The merged sketch of all ranks; one at a time, so none needs room for all of them."""
    if not is_distributed():
        return mine
    total = Sketch.empty(len(mine.rows), mine.width, mine.rank)
    rows, losses = _padded(mine), torch.stack([mine.lost, mine.bound])
    for rank in range(rank_and_world()[1]):
        theirs, (lost, bound) = from_rank(rows, rank), from_rank(losses, rank)
        kept = (theirs != 0).any(-1).any(0)
        total = total.plus(replace(mine, rows=theirs[:, kept], lost=lost, bound=bound))
    return total


def _padded(sketch: Sketch) -> Tensor:
    """All ranks must bring equally many rows; those of zeros change nothing."""
    rows = sketch.rows.new_zeros(len(sketch.rows), sketch.rank, sketch.width)
    rows[:, : sketch.rows.shape[1]] = sketch.rows
    return rows
