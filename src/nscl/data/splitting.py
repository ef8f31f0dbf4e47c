"""Which classes belong to which task: pure functions of the number of classes."""

import numpy as np

from nscl.data.catalogue import Order
from nscl.data.errors import DataError


def task_counts(classes: int) -> tuple[int, ...]:
    """Return the numbers of tasks that divide ``classes`` evenly.

    >>> task_counts(10)
    (1, 2, 5, 10)
    """
    return tuple(n for n in range(1, classes + 1) if classes % n == 0)


def random_numbers(*key: int) -> np.random.Generator:
    """Return numpy's generator for a seed, or for a seed and an index."""
    if min(key) < 0:
        raise DataError(f"the seed must not be negative, but is {min(key)}")
    return np.random.default_rng(key)


def ordered(count: int, *, order: Order = "natural", seed: int = 0) -> tuple[int, ...]:
    """Return 0..count-1 as it is, or shuffled by the seed."""
    if order == "natural":
        return tuple(range(count))
    if order == "random":
        return tuple(random_numbers(seed).permutation(count).tolist())
    raise DataError(f"order {order!r} is not known; choose 'natural' or 'random'")


def assign_classes(
    classes: int, tasks: int, *, order: Order = "natural", seed: int = 0
) -> tuple[tuple[int, ...], ...]:
    """Return each task's classes, equally many.

    >>> assign_classes(6, 3)
    ((0, 1), (2, 3), (4, 5))
    """
    if tasks not in task_counts(classes):
        choices = ", ".join(map(str, task_counts(classes)))
        raise DataError(
            f"{classes} classes cannot be split into {tasks} equal tasks; "
            f"choose a number of tasks from {choices}"
        )
    labels, width = ordered(classes, order=order, seed=seed), classes // tasks
    return tuple(labels[start : start + width] for start in range(0, classes, width))
