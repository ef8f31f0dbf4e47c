"""From a covariance to its eigenvectors: float64 ``eigh`` against float32 ``svd``."""

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks import dense
from benchmarks.catalogue import figure
from benchmarks.figure import Figure, at_least
from benchmarks.timing import Stopwatch
from nscl import Ratio
from nscl.core.spectrum import decompose


@figure("decomposition-2304")
def decomposition_2304(watch: Stopwatch) -> Figure:
    return _decomposition(watch, 2304, factor=2, least=2)


@figure("decomposition-4608", full=True)
def decomposition_4608(watch: Stopwatch) -> Figure:
    return _decomposition(watch, 4608, factor=5, least=1)


def _decomposition(watch: Stopwatch, features: int, *, factor: float, least: int) -> Figure:
    matrix = covariance(features)
    contestants: dict[str, Callable[[], object]] = {
        "ours": lambda: decompose(matrix[None], Ratio(10.0)),
        "dense": lambda: dense.decompose(matrix),
    }
    times = watch.race(contestants, least=least, most=5, warm=False)
    name, title = f"decomposition-{features}", f"d = {features}: float32 svd ÷ float64 eigh"
    mine, other = times["ours"].best, times["dense"].best
    return Figure(name, title, mine, other, "s", at_least(factor))


def covariance(features: int) -> Tensor:
    """A float64 covariance of full rank whose eigenvalues fall by five powers of ten.

    The published spectra of the wide layers have condition numbers of 10⁴ to 5·10⁵.
    """
    draw = torch.Generator().manual_seed(features)
    rows = torch.randn(2 * features, features, generator=draw, dtype=torch.float64)
    rows *= torch.logspace(0, -2.5, features, dtype=torch.float64)
    return rows.T @ rows / len(rows)
