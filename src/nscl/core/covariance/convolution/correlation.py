"""The covariance of a stride-1 convolution's patches without writing the patches out.

``correlation_plan`` plans which products are needed; they are computed here. Images lie in a buffer
``[*size, images, channels]``, a plain transposition of ``[images, channels, *size]``. Zeros follow
each line if they make it only a little longer: then a lag over the whole image is the same buffer
some pixels further on. Otherwise the columns that have a partner are copied.
"""

import math

import torch
from torch import Tensor

from nscl.core.covariance.convolution.correlation_plan import Family, Region, plan
from nscl.core.covariance.convolution.unfold import Ints, Patches

# Planning a pair of kernel positions takes Python as long as this many multiplications; a plan for
# few positions costs nothing, one for very many would be larger than the images.
PLANNING, SMALL, LARGEST = 1 << 20, 27, 128

CHUNK = 1 << 20  # numbers in a buffer (4 MiB); three of them are in use at a time
CACHED = 1 << 18  # numbers of one factor of a product: both stay in a core's own cache
PARTIAL = 1 << 16  # numbers of a product that is worth computing in parts


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


class CorrelationSums:
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
        """Add a batch; returns the diagonals just added, which show its scale and finiteness."""
        images = patches.images
        self.rows += patches.rows
        if self._with_column:
            self.pixel_sums = self.pixel_sums + images.sum(0, dtype=torch.float64)
        step = max(1, CHUNK // images[0].numel())
        return [self._add_images(chunk) for chunk in images.split(step)]

    def _add_images(self, images: Tensor) -> Tensor:
        buffer = _pixels_first(images, self.geometry.groups, self.plan.zeros)
        if not self.correlations:
            self._start(buffer)
        squares = self.correlations[self.plan.whole][0].diagonal(dim1=-2, dim2=-1)
        before = squares.clone()
        if any(self.plan.zeros):
            self._add_in_place(buffer, len(images))
        else:
            self._add_copied(buffer)
        return squares - before

    def _add_in_place(self, buffer: Tensor, count: int) -> None:
        """Whole images without copies; of the strips at the border only what they are."""
        rows, line = buffer.flatten(1, -2), math.prod(buffer.shape[2:-1])
        for family, lags in self.plan.lags.items():
            if (skip := self.plan.skip(family)) is not None:
                self._add_family(family, rows, rows[:, lags[0] * line + skip * count :], line)
                continue
            (a, b), here, there = family
            left, right = buffer[:, a:b], buffer[:, a + lags[0] : b + lags[-1]]
            line_of_strip = math.prod(high - low for low, high in here) * count
            self._add_family(family, _rows(left, here), _rows(right, there), line_of_strip)

    def _add_copied(self, buffer: Tensor) -> None:
        """Families with the same columns share their copies."""
        for columns, families in self.plan.by_columns.items():
            copies = {region: _rows(buffer, region) for region in columns}
            line = next(iter(copies.values())).shape[1] // buffer.shape[1]
            for family in families:
                (a, _), here, there = family
                right = copies[there][:, (a + self.plan.lags[family][0]) * line :]
                self._add_family(family, copies[here][:, a * line :], right, line)

    def _add_family(self, family: Family, left: Tensor, right: Tensor, line: int) -> None:
        """Correlate rows: the left ones begin with the family, the right ones a first lag later."""
        (a, b), lags = family[0], self.plan.lags[family]
        for total, lag in zip(self.correlations[family], lags, strict=True):
            rows, on = (min(b, self.plan.size[0] - lag) - a) * line, (lag - lags[0]) * line
            total += gram(left[:, :rows], right[:, on : on + rows])

    def _start(self, buffer: Tensor) -> None:
        groups, channels = buffer.shape[0], buffer.shape[-1]
        for family, lags in self.plan.lags.items():
            shape = (len(lags), groups, channels, channels)
            self.correlations[family] = buffer.new_zeros(shape, dtype=torch.float64)

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


def _pixels_first(images: Tensor, groups: int, zeros: Ints) -> Tensor:
    """``[images, channels, *size]`` as ``[groups, *size, images, channels / groups]``.

    ``zeros`` lie behind each line, and one more line behind the last: it ends as all others do.
    """
    count, channels, *size = images.shape
    # Transposing two dimensions is several times faster than permuting all of them.
    buffer = images.reshape(count * channels, -1).t().contiguous().view(*size, -1)
    if any(zeros):
        wider = [n + more for n, more in zip(size, (1, *zeros), strict=True)]
        narrow, buffer = buffer, images.new_zeros(*wider, count * channels)
        buffer[tuple(slice(n) for n in size)] = narrow
    return buffer.view(*buffer.shape[:-1], count, groups, -1).movedim(-2, 0).contiguous()


def _rows(buffer: Tensor, region: Region) -> Tensor:
    """The same columns of all lines, ``[groups, rows, channels]``."""
    columns = (slice(a, b) for a, b in region)
    return buffer[(slice(None), slice(None), *columns)].flatten(1, -2)


def gram(left: Tensor, right: Tensor) -> Tensor:
    """``leftᵀ right`` for ``[groups, rows, ·]``.

    One long product of few channels keeps neither the cache nor several cores busy, unlike many
    short ones, which are added up.
    """
    groups, rows, channels = left.shape
    if groups > 1:
        return torch.bmm(left.mT, right)
    parts = _parts(rows, channels) if channels * right.shape[-1] <= PARTIAL else 1
    if parts < 2:
        return (left[0].mT @ right[0])[None]
    few = left[0].view(parts, -1, channels), right[0].view(parts, -1, right.shape[-1])
    return torch.bmm(few[0].mT, few[1]).sum(0, keepdim=True)


def _parts(rows: int, channels: int) -> int:
    """How many equal parts fit the cache: as many for each core."""
    cores = torch.get_num_threads()
    parts = round(rows * channels / CACHED / cores) * cores
    while parts > 1 and rows % parts:
        parts -= cores
    return parts
