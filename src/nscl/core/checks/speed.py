"""How fast this machine decomposes and multiplies: measured small, scaled to any size."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

SIZE = 512  # of the matrices that are timed
TURNS = 3  # of which the best counts


@dataclass(frozen=True)
class Speed:
    """Seconds per operation. Large matrices are a little faster per operation than small ones."""

    eigh: float  # float64, by n³
    precise: float  # a float64 multiplication and addition
    single: float  # the same in float32

    def decompose(self, n: int) -> float:
        """Eigenvalues and vectors of an ``n × n`` matrix.

        >>> Speed(eigh=1e-9, precise=0.0, single=0.0).decompose(1000)
        1.0
        """
        return round(self.eigh * n**3, 12)

    def decompose_sketch(self, width: int, rank: int) -> float:
        """A QR decomposition of ``width × rank``, and a small one of ``rank × rank``."""
        return 3 * self.precise * width * rank**2 + 2 * self.decompose(rank)


@cache
def measured_speed() -> Speed:
    """Time three small matrices, once per process."""
    values = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(0), device="cpu")
    precise = values.double()
    symmetric = precise @ precise.mT
    return Speed(
        eigh=_best(lambda: torch.linalg.eigh(symmetric)) / SIZE**3,
        precise=_best(lambda: precise @ precise) / SIZE**3,
        single=_best(lambda: values @ values) / SIZE**3,
    )


def _best(work: Callable[[], object]) -> float:
    times = []
    for _ in range(TURNS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
