"""The covariance of a stride-1 convolution's patches without writing the patches out.

Two features of a patch are two channels at two kernel positions ``o`` and ``o'``. Summed over all
patches, their product is the correlation of the two channels at the lag ``(o' − o)·dilation``,
over the pixels that the kernel position ``o`` passes. Those pixels are all of them but a strip at
the border. So the whole ``(C·K) × (C·K)`` matrix is assembled from

- one ``C × C`` correlation per lag over the whole image: 13 instead of 81 for a 3 × 3 kernel, and
- correlations over thin border strips, by inclusion and exclusion,

exactly, for any padding, dilation and groups. Images lie in a buffer ``[*size, images, channels]``
with zeros to the right of each line; a lag is then a shift of the flat buffer, and each whole-image
correlation is one matrix product of two views of the same memory.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import torch
from torch import Tensor

from nscl.core.patches import CHUNK, Geometry, Ints, Patches

# Planning a pair of kernel positions takes Python as long as this many multiplications; kernels of
# few positions are planned in no time, those of very many would need a plan larger than the images.
PLANNING, SMALL, LARGEST = 1 << 20, 27, 128

Region = tuple[tuple[int, int], ...]  # pixels, start and stop per dimension
Term = tuple[Region, Ints]  # correlate this region with itself, moved by this lag


@dataclass(frozen=True)
class Plan:
    """Which correlations a geometry needs on one input size, and how they add up to blocks."""

    size: Ints
    margin: Ints  # zeros behind each line of the buffer
    blocks: dict[tuple[int, int], list[tuple[int, Term]]]  # (o, o') → signed terms
    terms: frozenset[Term]

    @property
    def full(self) -> Region:
        """The whole image."""
        return tuple((0, n) for n in self.size)

    @property
    def cost(self) -> int:
        """Pixels multiplied per image and pair of channels; the unfolded way has K²·positions."""
        line = math.prod(n + m for n, m in zip(self.size, self.margin, strict=True))
        return sum(
            line if region == self.full else math.prod(b - a for a, b in region)
            for region, _ in self.terms
        )


@lru_cache(maxsize=64)
def plan(size: Ints, geometry: Geometry) -> Plan:
    """Work out the terms of every pair of kernel positions."""
    offsets, blocks = geometry.offsets, {}
    for i, first in enumerate(offsets):
        for j, second in enumerate(offsets[i:], start=i):
            lag = tuple(
                (b - a) * d for a, b, d in zip(first, second, geometry.dilation, strict=True)
            )
            blocks[i, j] = _terms(size, first, lag, geometry)
    terms = frozenset(term for signed in blocks.values() for _, term in signed)
    # A lag never reaches further than this, so no product wraps around into the next line; lines
    # of the outermost dimension simply end with the buffer.
    reach = [(k - 1) * d for k, d in zip(geometry.kernel, geometry.dilation, strict=True)]
    return Plan(size, (0, *reach[1:]), blocks, terms)


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
    full = all(interval == (0, n) for interval, n in zip(region, size, strict=True))
    clipped = tuple(
        (max(a, -step), min(b, n - step)) for (a, b), step, n in zip(region, lag, size, strict=True)
    )
    if any(a >= b for a, b in clipped):
        return None
    return (region if full else clipped), lag


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
    """Running float64 correlations of one convolution at one input size."""

    def __init__(self, patches: Patches) -> None:
        self.geometry = patches.geometry
        self.plan = plan(patches.size, patches.geometry)
        self.correlations: dict[Term, Tensor] = {}
        self.pixel_sums: Tensor | None = None  # [channels, *size]: gives the column of the bias
        self.rows = 0

    def add(self, patches: Patches) -> list[Tensor]:
        """Add a batch; returns the diagonals just added, which tell its scale and finiteness."""
        images = patches.images
        self.rows += patches.rows
        pixels = images.sum(0, dtype=torch.float64)
        self.pixel_sums = pixels if self.pixel_sums is None else self.pixel_sums + pixels
        buffer_size = math.prod(self._line()) * images.shape[1]
        step = max(1, CHUNK // buffer_size)
        return [self._add_buffer(chunk) for chunk in images.split(step)]

    def _line(self) -> Ints:
        return tuple(n + m for n, m in zip(self.plan.size, self.plan.margin, strict=True))

    def _add_buffer(self, images: Tensor) -> Tensor:
        groups, dims = self.geometry.groups, len(self.plan.size)
        count, channels = images.shape[:2]
        buffer = images.new_zeros(groups, *self._line(), count, channels // groups)
        grouped = images.unflatten(1, (groups, -1))
        inner = (slice(None), *(slice(0, n) for n in self.plan.size))
        buffer[inner] = grouped.permute(1, *range(3, 3 + dims), 0, 2)
        zero = (self.plan.full, (0,) * dims)
        for term in self.plan.terms:
            found = self._correlate(buffer, term)
            if term == zero:
                diagonal = found.diagonal(dim1=-2, dim2=-1)
            if term in self.correlations:
                self.correlations[term] += found
            else:
                self.correlations[term] = found.double()
        return diagonal

    def _correlate(self, buffer: Tensor, term: Term) -> Tensor:
        region, lag = term
        if region == self.plan.full:
            flat = buffer.flatten(1, -2)
            shift = 0
            for step, length in zip(lag, self._line(), strict=True):
                shift = shift * length + step
            shift *= buffer.shape[-2]
            return gram(flat[:, : flat.shape[1] - shift], flat[:, shift:])
        here = tuple(slice(a, b) for a, b in region)
        there = tuple(slice(a + s, b + s) for (a, b), s in zip(region, lag, strict=True))
        left, right = buffer[(slice(None), *here)], buffer[(slice(None), *there)]
        return gram(left.flatten(1, -2), right.flatten(1, -2))

    def matrix(self) -> Tensor:
        """Assemble ``[groups, features, features]``: once per task, not per batch."""
        positions = self.geometry.positions
        some = next(iter(self.correlations.values()))
        groups, channels = some.shape[:2]
        full = some.new_zeros(groups, channels, positions, channels, positions)
        for (i, j), signed in self.plan.blocks.items():
            block = full[:, :, i, :, j]
            for sign, term in signed:
                block.add_(self.correlations[term], alpha=sign)
            if i != j:
                full[:, :, j, :, i] = block.mT
        return full.reshape(groups, channels * positions, channels * positions)

    def column(self) -> Tensor:
        """Sum of all patches, ``[groups, features]``."""
        geometry, pixels = self.geometry, self.pixel_sums
        if pixels is None:
            raise RuntimeError("no batch has been added")
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


def gram(left: Tensor, right: Tensor) -> Tensor:
    """``leftᵀ right`` for ``[groups, rows, ·]``; one group is a plain matrix product."""
    if left.shape[0] == 1:
        return (left[0].mT @ right[0])[None]
    return torch.bmm(left.mT, right)
