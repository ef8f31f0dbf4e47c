"""All randomness of a run is derived from its seed and the place where it is needed.

No random state is carried from one epoch to the next. So a run that resumes at an epoch draws what
an uninterrupted one would, and a checkpoint needs no generator's state between epochs.
"""

import hashlib
import random

import torch


def derive(seed: int, *place: object) -> int:
    """A seed for one place, such as ``derive(0, "epoch", task, phase, epoch)``."""
    text = "/".join(str(part) for part in (seed, *place))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def seed_all(seed: int, *place: object) -> None:
    """Seed every global generator that a method or a layer might use."""
    value = derive(seed, *place)
    random.seed(value)
    torch.manual_seed(value)
    try:
        import numpy as np
    except ImportError:
        return
    np.random.seed(value % 2**32)  # noqa: NPY002  (other people's code draws from it)


def generator(seed: int, *place: object) -> torch.Generator:
    """A separate generator for one place."""
    return torch.Generator().manual_seed(derive(seed, *place))
