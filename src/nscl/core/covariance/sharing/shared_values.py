"""Between passes, layers that were fed the same inputs share one covariance object.

A function of many covariances is called once for each object, so that layers go on sharing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from torch import Tensor

from nscl.core.covariance.covariance import Covariance

T = TypeVar("T")
R = TypeVar("R")


def each_once(values: Iterable[T]) -> Iterator[T]:
    """Objects that are not the same.

    >>> a, b = [1], [1]
    >>> len(list(each_once([a, b, a])))
    2
    """
    return iter({id(value): value for value in values}.values())


def mapped_once(values: Mapping[str, T], function: Callable[[T], R]) -> dict[str, R]:
    """A function of every value, called once for values that are one object.

    >>> a = [1]
    >>> found = mapped_once({"q": a, "k": a, "v": [1]}, list)
    >>> found["q"] is found["k"], found["q"] is found["v"]
    (True, False)
    """
    made = {id(value): function(value) for value in each_once(values.values())}
    return {name: made[id(value)] for name, value in values.items()}


def added(
    mine: Mapping[str, Covariance], new: Mapping[str, Covariance], *, same_tasks: bool = False
) -> dict[str, Covariance]:
    """Sums of both; what only one of them has is taken over."""
    made: dict[tuple[int, int], Covariance] = {}
    total = dict(mine)
    for name, other in new.items():
        old = mine.get(name)
        key = (id(old), id(other))
        if key not in made:
            if old is not None:
                made[key] = old.plus(other, same_tasks=same_tasks)
            else:  # its sums may lie in another memory's file, which disappears: take the tensor
                made[key] = replace(other, stored=other.sums)
        total[name] = made[key]
    return total


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of tensors, once for those that are one object."""
    return sum(tensor.nbytes for tensor in each_once(tensors))
