"""Out of memory: a covariance has a number for each pair of features, which the error explains."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from nscl.core.model.block import Block
from nscl.errors import FeatureError


@contextmanager
def explain_out_of_memory(block: Block, rank: int | None = None) -> Iterator[None]:
    """Name the layer whose matrices do not fit into memory, and the way out."""
    try:
        yield
    except (MemoryError, RuntimeError) as problem:
        if not _is_too_large(problem):
            raise
        lines = min(block.width, 2 * (rank or block.width))  # a sketch has a buffer of 2·rank rows
        size = block.groups * lines * block.width * 8 / 2**30
        raise FeatureError(
            f"layer '{block.name}' has {block.width} input features: its covariance takes "
            f"{size:.1f} GiB, which does not fit into memory; keep a sketch of it (a smaller "
            f"rank=...){block.way_out}. The memory is unchanged"
        ) from problem


def _is_too_large(problem: Exception) -> bool:
    known = isinstance(problem, MemoryError | torch.OutOfMemoryError)
    return known or "allocate" in str(problem)  # torch's CPU allocator raises a RuntimeError
