"""A covariance has a number for each pair of features: say so where there is no room for it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from nscl.core.blocks import Block
from nscl.errors import FeatureError


@contextmanager
def room_for(block: Block) -> Iterator[None]:
    """Name the layer whose matrices do not fit into memory, and the way out."""
    try:
        yield
    except (MemoryError, RuntimeError) as problem:
        if not _is_too_large(problem):
            raise
        size = block.groups * block.width**2 * 8 / 2**30
        raise FeatureError(
            f"layer '{block.name}' has {block.width} input features: its covariance takes "
            f"{size:.1f} GiB while it is summed and decomposed, which does not fit into memory; "
            f"make its input narrower{block.way_out}. The memory is unchanged"
        ) from problem


def _is_too_large(problem: Exception) -> bool:
    known = isinstance(problem, MemoryError | torch.OutOfMemoryError)
    return known or "allocate" in str(problem)  # torch's CPU allocator raises a RuntimeError
