"""One number from several seeds: the mean and the sample standard deviation."""

import math
import statistics
from collections.abc import Iterable
from typing import NamedTuple

from nscl.metrics.errors import MetricError


class Summary(NamedTuple):
    """Mean over seeds; ``std`` is the sample deviation (n - 1), None for one seed."""

    mean: float
    std: float | None


def summary(values: Iterable[float]) -> Summary:
    """Mean and sample standard deviation of one figure over seeds.

    >>> summary([70.0, 72.0, 74.0])
    Summary(mean=72.0, std=2.0)
    >>> summary([70.0]).std is None
    True
    """
    numbers = [float(value) for value in values]
    if not numbers:
        raise MetricError("nothing to summarise: give at least one value")
    if not all(map(math.isfinite, numbers)):
        raise MetricError(f"cannot summarise values that are not finite: {numbers}")
    std = statistics.stdev(numbers) if len(numbers) > 1 else None
    return Summary(statistics.fmean(numbers), std)
