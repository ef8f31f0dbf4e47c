"""The covariance of a stride-1 convolution's patches without writing the patches out.

Two features of a patch are two channels at two kernel positions ``o`` and ``o'``. Summed over all
patches, their product is the correlation of the two channels at the lag ``(o' − o)·dilation``,
over the pixels that the kernel position ``o`` passes. Those pixels are all of them but a strip at
the border. So the whole ``(C·K) × (C·K)`` matrix is assembled from

- one ``C × C`` correlation per lag over the whole image: 13 instead of 81 for a 3 × 3 kernel, and
- correlations over thin border strips, by inclusion and exclusion,

exactly, for any padding, dilation and groups.

Images lie in a buffer ``[*size, images, channels]``, a plain transposition of ``[images, channels,
*size]``, with some lines of zeros behind. Terms that differ only in their lag along the outermost
dimension multiply the same columns with the same columns some lines further on: a family of such
terms is one batch of matrix products over overlapping views, and families share their copies of
columns. Few images are taken at a time, since products are faster while they stay in the cache.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import torch
from torch import Tensor

from nscl.core.patches import Geometry, Ints, Patches

# Planning a pair of kernel positions takes Python as long as this many multiplications; kernels of
# few positions are planned in no time, those of very many would need a plan larger than the images.
PLANNING, SMALL, LARGEST = 1 << 20, 27, 128

CHUNK = 1 << 20  # numbers in a buffer (4 MiB); three of them are in use at a time
WIDE = 256  # channels from which on a single product keeps several cores busy

Interval = tuple[int, int]  # pixels, start and stop
Region = tuple[Interval, ...]  # one interval per dimension
Family = tuple[Interval, Region, Region]  # lines; their columns here and there
Term = tuple[Family, int]  # correlate the lines here with those this lag further on, there


@dataclass(frozen=True)
class Plan:
    """Which correlations a geometry needs on one input size, and how they add up to blocks."""

    size: Ints
    blocks: dict[tuple[int, int], list[tuple[int, Term]]]  # (o, o') → signed terms
    lags: dict[Family, list[int]]  # evenly spaced

    @property
    def whole(self) -> Family:
        """The whole image with itself; its lag 0 comes first."""
        columns = tuple((0, n) for n in self.size[1:])
        return (0, self.size[0]), columns, columns

    @property
    def margin(self) -> int:
        """Lines of zeros that a lag may reach behind the last line."""
        reach = max(lines[1] + lags[-1] for (lines, _, _), lags in self.lags.items())
        return max(0, reach - self.size[0])

    @property
    def cost(self) -> int:
        """Pixels multiplied per image and pair of channels; the unfolded way has K²·positions."""
        return sum(
            len(lags) * math.prod(b - a for a, b in (lines, *here))
            for (lines, here, _), lags in self.lags.items()
        )

    def by_columns(self) -> dict[frozenset[Region], list[Family]]:
        """Families that need the same copies."""
        shared: dict[frozenset[Region], list[Family]] = {}
        for family in self.lags:
            shared.setdefault(frozenset(family[1:]), []).append(family)
        return shared


@lru_cache(maxsize=64)
def plan(size: Ints, geometry: Geometry) -> Plan:
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
    return Plan(size, blocks, {family: sorted(steps) for family, steps in lags.items()})


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


def is_cheaper(patches: Patches) -> bool:
    """Whether lags need fewer multiplications than unfolded patches; only stride 1 has lags."""
    geometry = patches.geometry
    if geometry.positions == 1 or any(s != 1 for s in geometry.stride):
        return False
    if geometry.positions > LARGEST:
        return False
    per_pair = patches.rows * patches.images.shape[1] ** 2 // geometry.groups
    if geometry.positions > SMALL and per_pair < PLANNING:
        return False
    unfolded = geometry.positions**2 * math.prod(geometry.output_size(patches.size))
    return plan(patches.size, geometry).cost < unfolded


class LaggedSums:
    """Running float64 correlations of one convolution at one input size.

    Without ``column`` the sum of the patches, which only a bias needs, is not kept.
    """

    def __init__(self, patches: Patches, *, column: bool = True) -> None:
        self.geometry = patches.geometry
        self.plan = plan(patches.size, patches.geometry)
        self.correlations: dict[Family, Tensor] = {}  # [lags, groups, channels, channels]
        self.pixel_sums: Tensor | float = 0.0  # [channels, *size]: gives the column of the bias
        self.rows = 0
        self._with_column = column

    def add(self, patches: Patches) -> list[Tensor]:
        """Add a batch; returns the diagonals just added, which tell its scale and finiteness."""
        images = patches.images
        self.rows += patches.rows
        if self._with_column:
            self.pixel_sums = self.pixel_sums + images.sum(0, dtype=torch.float64)
        step = max(1, CHUNK // images[0].numel())
        return [self._add_images(chunk) for chunk in images.split(step)]

    def _add_images(self, images: Tensor) -> Tensor:
        buffer = _pixels_first(images, self.geometry.groups, self.plan.margin)
        if not self.correlations:
            self._start(buffer)
        squares = self.correlations[self.plan.whole][0].diagonal(dim1=-2, dim2=-1)
        before = squares.clone()
        for columns, families in self.plan.by_columns().items():
            copies = {region: _columns(buffer, region) for region in columns}
            for family in families:
                for which, found in self._products(copies, family):
                    self.correlations[family][which] += found
        return squares - before

    def _start(self, buffer: Tensor) -> None:
        groups, channels = buffer.shape[0], buffer.shape[-1]
        for family, lags in self.plan.lags.items():
            shape = (len(lags), groups, channels, channels)
            self.correlations[family] = buffer.new_zeros(shape, dtype=torch.float64)

    def _products(
        self, copies: dict[Region, Tensor], family: Family
    ) -> Iterator[tuple[int | slice, Tensor]]:
        """All correlations of a family, with their place in its sums."""
        (a, b), here, there = family
        left, right, lags = copies[here], copies[there], self.plan.lags[family]
        if left.shape[0] == 1 and left.shape[-1] < WIDE:
            yield slice(None), _all_lags(left[0, a:b], right[0, a + lags[0] :], lags)[:, None]
            return
        for i, lag in enumerate(lags):
            stop = min(b, self.plan.size[0] - lag)
            rows = left[:, a:stop].flatten(1, -2), right[:, a + lag : stop + lag].flatten(1, -2)
            yield i, gram(*rows)

    def matrix(self) -> Tensor:
        """Assemble ``[groups, features, features]``: once per task, not per batch."""
        positions = self.geometry.positions
        some = self.correlations[self.plan.whole]
        groups, channels = some.shape[1:3]
        full = some.new_zeros(groups, channels, positions, channels, positions)
        for (i, j), signed in self.plan.blocks.items():
            block = full[:, :, i, :, j]
            for sign, (family, lag) in signed:
                which = self.plan.lags[family].index(lag)
                block.add_(self.correlations[family][which], alpha=sign)
            if i != j:
                full[:, :, j, :, i] = block.mT
        return full.reshape(groups, channels * positions, channels * positions)

    def column(self) -> Tensor:
        """Sum of all patches, ``[groups, features]``."""
        geometry, pixels = self.geometry, self.pixel_sums
        if not isinstance(pixels, Tensor):
            raise RuntimeError("no batch has been added, or the column was not asked for")
        size = geometry.output_size(self.plan.size)
        sums = []
        for offset in geometry.offsets:
            window = pixels
            for dim, (o, out) in enumerate(zip(offset, size, strict=True)):
                start = o * geometry.dilation[dim] - geometry.padding[dim][0]
                passed = slice(max(0, start), max(0, start + out))
                window = window[(slice(None),) * (dim + 1) + (passed,)]
            sums.append(window.flatten(1).sum(1))
        return torch.stack(sums, 1).reshape(geometry.groups, -1)


def _pixels_first(images: Tensor, groups: int, margin: int) -> Tensor:
    """``[images, channels, *size]`` as ``[groups, *size, images, channels / groups]``.

    ``margin`` lines of zeros come behind the last line.
    """
    count, channels, lines, *columns = images.shape
    flat = images.new_empty((lines + margin) * math.prod(columns), count * channels)
    pixels = lines * math.prod(columns)
    # Transposing two dimensions is several times faster than permuting all of them.
    flat[:pixels] = images.reshape(count * channels, -1).t()
    flat[pixels:] = 0
    split = flat.view(lines + margin, *columns, count, groups, channels // groups)
    return split.movedim(-2, 0).contiguous()


def _columns(buffer: Tensor, region: Region) -> Tensor:
    """The same columns of all lines, side by side in memory."""
    return buffer[(slice(None), slice(None), *(slice(a, b) for a, b in region))].contiguous()


def _all_lags(left: Tensor, right: Tensor, lags: list[int]) -> Tensor:
    """``leftᵀ right`` for ``right`` moved on by evenly spaced lags, without copies."""
    channels, rows = left.shape[-1], math.prod(left.shape[:-1])
    step = (lags[1] - lags[0]) * right.stride(0) if len(lags) > 1 else 0
    moved = right.as_strided((len(lags), rows, channels), (step, channels, 1))
    return torch.bmm(left.reshape(rows, channels).mT.expand(len(lags), -1, -1), moved)


def gram(left: Tensor, right: Tensor) -> Tensor:
    """``leftᵀ right`` for ``[groups, rows, ·]``; one group is a plain matrix product."""
    if left.shape[0] == 1:
        return (left[0].mT @ right[0])[None]
    return torch.bmm(left.mT, right)
