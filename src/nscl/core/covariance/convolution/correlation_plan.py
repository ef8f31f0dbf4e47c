"""Which correlations make up the covariance of a stride-1 convolution's patches.

Two features of a patch are two channels at two kernel positions ``o`` and ``o'``. Summed over all
patches, their product is the correlation of the two channels at the lag ``(o' − o)·dilation``,
over the pixels that the kernel position ``o`` passes. Those pixels are all of them but a strip at
the border. So the whole ``(C·K) × (C·K)`` matrix is assembled from

- one ``C × C`` correlation per lag over the whole image: 13 instead of 81 for a 3 × 3 kernel, and
- correlations over thin border strips, by inclusion and exclusion,

exactly, for any padding, dilation and groups. Terms that differ only in their lag along the
outermost dimension are a family: the same columns, multiplied with the same columns some lines
further on.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product

from nscl.core.covariance.convolution.unfold import Geometry, Ints

WASTE = 1.15  # factor by which zeros after each line may lengthen products, to avoid copies

Interval = tuple[int, int]  # pixels, start and stop
Region = tuple[Interval, ...]  # one interval per dimension
Family = tuple[Interval, Region, Region]  # lines; their columns here and there
Term = tuple[Family, int]  # correlate the lines here with those this lag further on, there


@dataclass(frozen=True)
class CorrelationPlan:
    """Which correlations a geometry needs on one input size, and how they add up to blocks."""

    size: Ints
    blocks: dict[tuple[int, int], list[tuple[int, Term]]]  # (o, o') → signed terms
    lags: dict[Family, list[int]]  # along the outermost dimension, ascending

    @property
    def whole(self) -> Family:
        """The whole image with itself; its lag 0 comes first."""
        columns = tuple((0, n) for n in self.size[1:])
        return (0, self.size[0]), columns, columns

    @cached_property
    def zeros(self) -> Ints:
        """Zeros behind each line, per inner dimension; none where copies are cheaper."""
        starts = [(here, there) for _, here, there in self.lags]
        reach = tuple(
            max(abs(there[i][0] - here[i][0]) for here, there in starts)
            for i in range(len(self.size) - 1)
        )
        longer = math.prod((n + r) / n for n, r in zip(self.size[1:], reach, strict=True))
        return reach if longer <= WASTE else (0,) * len(reach)

    @property
    def cost(self) -> int:
        """Pixels multiplied per image and pair of channels; the unfolded way has K²·positions."""
        return sum(
            len(lags) * math.prod(b - a for a, b in (lines, *here))
            for (lines, here, _), lags in self.lags.items()
        )

    @cached_property
    def by_columns(self) -> dict[frozenset[Region], list[Family]]:
        """Families that need the same copies."""
        shared: dict[frozenset[Region], list[Family]] = {}
        for family in self.lags:
            shared.setdefault(frozenset(family[1:]), []).append(family)
        return shared

    def skip(self, family: Family) -> int | None:
        """Pixels from here to there in lines with zeros; None for strips, which are not whole."""
        lines, here, there = family
        pixels, is_whole = 0, lines == (0, self.size[0])
        for n, more, (a, b), (c, _) in zip(self.size[1:], self.zeros, here, there, strict=True):
            pixels = pixels * (n + more) + c - a
            is_whole &= b - a + abs(c - a) == n
        return pixels if is_whole else None


@lru_cache(maxsize=64)
def plan(size: Ints, geometry: Geometry) -> CorrelationPlan:
    """Work out the terms of every pair of kernel positions."""
    offsets, blocks = geometry.offsets, {}
    lags: dict[Family, set[int]] = {}
    for i, first in enumerate(offsets):
        for j, second in enumerate(offsets[i:], start=i):
            lag = tuple(
                (b - a) * d for a, b, d in zip(first, second, geometry.dilation, strict=True)
            )
            blocks[i, j] = _terms(size, first, lag, geometry)
            for _, (family, step) in blocks[i, j]:
                lags.setdefault(family, set()).add(step)
    return CorrelationPlan(size, blocks, {family: sorted(steps) for family, steps in lags.items()})


def _terms(size: Ints, offset: Ints, lag: Ints, geometry: Geometry) -> list[tuple[int, Term]]:
    """Whole image minus the pixels that this kernel position never passes."""
    choices = []
    for n, o, out, dilation, (before, _) in zip(
        size, offset, geometry.output_size(size), geometry.dilation, geometry.padding, strict=True
    ):
        start = o * dilation - before
        outside = ((0, min(n, start)), (max(0, start + out), n))
        choices.append([(1, (0, n)), *((-1, strip) for strip in outside if strip[0] < strip[1])])
    terms = []
    for choice in product(*choices):
        region = tuple(interval for _, interval in choice)
        sign = math.prod(s for s, _ in choice)
        if (term := _inside(region, lag, size)) is not None:
            terms.append((sign, term))
    return terms


def _inside(region: Region, lag: Ints, size: Ints) -> Term | None:
    """Keep the pixels whose partner lies on the image too; elsewhere the partner is zero."""
    clipped = tuple(
        (max(a, -step), min(b, n - step)) for (a, b), step, n in zip(region, lag, size, strict=True)
    )
    if any(a >= b for a, b in clipped):
        return None
    here = clipped[1:]
    there = tuple((a + step, b + step) for (a, b), step in zip(here, lag[1:], strict=True))
    # Lines are not clipped: a family has the same ones for all its lags.
    return (region[0], here, there), lag[0]
