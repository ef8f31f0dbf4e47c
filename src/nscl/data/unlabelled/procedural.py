"""Procedural pictures: an unlabelled pool that needs no second data set on disk.

Dead leaves (Lee, Mumford and Huang, 2001: overlapping discs with power-law radii), coloured
polygons, 1/f^alpha colour noise, noise under random filters and fractals (iterated function
systems, Barnsley 1988, coloured as Draves's flames); with current-task images also their
patch-shuffled, blended (mixup, Zhang et al. 2018) and pasted (CutMix, Yun et al. 2019) copies.
"""

from collections.abc import Callable

import torch
from torch import Tensor

_CHUNK = 1000
_LEAVES = 40
_POLYGONS = 10
_EDGES = 5
_MAPS = 4
_SETTLING, _DRAWN = 10, 16  # steps of the chaos game before points are on the fractal, and after

Shape = tuple[int, int, int]
Painter = Callable[[int, Shape, torch.Generator], Tensor]


def procedural_images(
    count: int,
    shape: Shape,
    *,
    generator: torch.Generator,
    current: Tensor | None = None,
) -> Tensor:
    """Paint ``uint8 [count, C, H, W]``, each image of a kind drawn at random.

    With ``current`` (uint8 images of the task being learned, never of an old one) half of the
    images are made from them.
    """
    starts = range(0, count, _CHUNK)
    parts = [_paint(min(_CHUNK, count - at), shape, generator, current) for at in starts]
    return torch.cat(parts) if parts else torch.empty((0, *shape), dtype=torch.uint8)


def dead_leaves(count: int, shape: Shape, generator: torch.Generator) -> Tensor:
    """Return floats in 0..1: discs that cover each other, radii drawn from a power law."""
    down, right = _grid(shape)
    canvas = torch.rand((count, shape[0], 1, 1), generator=generator).expand(-1, *shape).clone()
    for _ in range(_LEAVES):
        y, x, u = torch.rand((3, count, 1, 1, 1), generator=generator)
        # Inverse of the distribution of radii with density ~ r^-3 between 0.04 and 0.5.
        radius = (0.04**-2 * (1 - u) + 0.5**-2 * u).rsqrt()
        colour = torch.rand((count, shape[0], 1, 1), generator=generator)
        canvas = torch.where((down - y) ** 2 + (right - x) ** 2 < radius**2, colour, canvas)
    return canvas


def polygons(count: int, shape: Shape, generator: torch.Generator) -> Tensor:
    """Return floats in 0..1: convex polygons, each an intersection of half-planes."""
    down, right = _grid(shape)
    canvas = torch.rand((count, shape[0], 1, 1), generator=generator).expand(-1, *shape).clone()
    for _ in range(_POLYGONS):
        y, x = torch.rand((2, count, 1, 1, 1), generator=generator)
        colour = torch.rand((count, shape[0], 1, 1), generator=generator)
        inside = torch.ones((count, 1, *shape[1:]), dtype=torch.bool)
        for angle in torch.rand((_EDGES, count, 1, 1, 1), generator=generator) * (2 * torch.pi):
            distance = 0.05 + 0.3 * torch.rand((count, 1, 1, 1), generator=generator)
            inside &= (down - y) * angle.sin() + (right - x) * angle.cos() < distance
        canvas = torch.where(inside, colour, canvas)
    return canvas


def coloured_noise(count: int, shape: Shape, generator: torch.Generator) -> Tensor:
    """Return floats in 0..1: noise with amplitude 1/f^alpha, alpha in 0.5..2, channels mixed."""
    height, width = shape[1:]
    frequency = torch.sqrt(
        torch.fft.fftfreq(height)[:, None] ** 2 + torch.fft.rfftfreq(width)[None] ** 2
    ).clamp(min=1 / max(height, width))
    alpha = 0.5 + 1.5 * torch.rand((count, 1, 1, 1), generator=generator)
    noise = torch.randn((count, *shape), generator=generator)
    shaped = torch.fft.irfft2(torch.fft.rfft2(noise) * frequency**-alpha, s=(height, width))
    mixing = torch.randn((count, shape[0], shape[0]), generator=generator)
    return _stretch((mixing @ shaped.flatten(2)).view(count, *shape))


def filtered_noise(count: int, shape: Shape, generator: torch.Generator) -> Tensor:
    """Return floats in 0..1: white noise under a random kernel of its own per image."""
    height, width = shape[1:]
    side = (min(7, height), min(7, width))
    noise = torch.randn((count, *shape), generator=generator)
    kernel = torch.randn((count, 1, *side), generator=generator)
    spectrum = torch.fft.rfft2(noise) * torch.fft.rfft2(kernel, s=(height, width))
    return _stretch(torch.fft.irfft2(spectrum, s=(height, width)))


def fractals(count: int, shape: Shape, generator: torch.Generator) -> Tensor:
    """Return floats in 0..1: attractors of random contractions, computed from many points at once.

    Each point jumps by a map drawn at random and takes on half of that map's colour; pixels are
    as bright as the logarithm of their visits.
    """
    points = max(64, shape[1] * shape[2] // 4)
    turn = 2 * torch.pi * torch.rand((count, _MAPS), generator=generator)
    tall, wide = 0.3 + 0.5 * torch.rand((2, count, _MAPS), generator=generator)
    linear = (turn.cos() * tall, -turn.sin() * wide, turn.sin() * tall, turn.cos() * wide)
    offset = 2 * torch.rand((2, count, _MAPS), generator=generator) - 1
    colours = torch.rand((shape[0], count, _MAPS), generator=generator)
    maps = torch.stack([*linear, *offset, *colours])
    y, x, colour = torch.zeros(count, points), torch.zeros(count, points), torch.zeros(())
    visits = []
    for _ in range(_SETTLING + _DRAWN):
        which = torch.randint(0, _MAPS, (count, points), generator=generator)
        a, b, c, d, e, f, *tint = maps.gather(2, which.expand(len(maps), -1, -1))
        y, x = a * y + b * x + e, c * y + d * x + f
        colour = (colour + torch.stack(tint)) / 2
        visits.append(torch.cat([torch.stack([y, x]), colour]))
    background = torch.rand((count, shape[0], 1), generator=generator)
    return _developed(torch.cat(visits[_SETTLING:], 2), background, shape)


def shuffle_patches(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return the images cut into 4 × 4 equal patches, in another order in each image.

    Rows and columns left over where 4 does not divide the size stay where they are.
    """
    count, channels, height, width = images.shape
    cells = min(4, height, width)
    size = (height // cells, width // cells)
    area = images[:, :, : cells * size[0], : cells * size[1]]
    patches = area.reshape(count, channels, cells, size[0], cells, size[1])
    patches = patches.permute(0, 2, 4, 1, 3, 5).reshape(count, cells**2, -1)
    order = torch.rand((count, cells**2), generator=generator).argsort(1)
    patches = patches.gather(1, order[:, :, None].expand_as(patches))
    patches = patches.view(count, cells, cells, channels, *size).permute(0, 3, 1, 4, 2, 5)
    shuffled = images.clone()
    shuffled[:, :, : cells * size[0], : cells * size[1]] = patches.reshape(area.shape)
    return shuffled


def mixup(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return each image blended with another, in a share drawn from Beta(1, 1)."""
    share = torch.rand((len(images), 1, 1, 1), generator=generator)
    other = images[torch.randperm(len(images), generator=generator)]
    return (share * images + (1 - share) * other).round().to(torch.uint8)


def cutmix(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return each image with a rectangle of another, its area's share drawn from Beta(1, 1)."""
    down, right = _grid((1, *images.shape[2:]))
    y, x, share = torch.rand((3, len(images), 1, 1, 1), generator=generator)
    half = share.sqrt() / 2
    inside = ((down - y).abs() < half) & ((right - x).abs() < half)
    return torch.where(inside, images[torch.randperm(len(images), generator=generator)], images)


def _paint(count: int, shape: Shape, generator: torch.Generator, current: Tensor | None) -> Tensor:
    painters: tuple[Painter, ...] = (
        dead_leaves, polygons, coloured_noise, filtered_noise, fractals
    )  # fmt: skip
    borrowed = count // 2 if current is not None and len(current) > 0 else 0
    kinds = torch.randint(0, len(painters), (count - borrowed,), generator=generator)
    numbers = torch.bincount(kinds, minlength=len(painters)).tolist()
    parts = [
        (paint(number, shape, generator) * 255).round().to(torch.uint8)
        for paint, number in zip(painters, numbers, strict=True)
        if number > 0
    ]
    if current is not None and borrowed:
        rows = torch.randint(0, len(current), (borrowed,), generator=generator)
        third = -(-borrowed // 3)
        changes = (shuffle_patches, mixup, cutmix)
        chosen = torch.split(current[rows].cpu(), third)
        parts += [change(part, generator) for change, part in zip(changes, chosen, strict=False)]
    return torch.cat(parts)[torch.randperm(count, generator=generator)]


def _developed(visits: Tensor, background: Tensor, shape: Shape) -> Tensor:
    """Return visits ``[2 + C, N, V]``, places and colours, as images that they just fill."""
    channels, height, width = shape
    places, shades = visits[:2], visits[2:].transpose(0, 1)
    low, high = places.amin(2, keepdim=True), places.amax(2, keepdim=True)
    # Short of 1: the last point belongs into the last pixel, not behind it.
    share = (places - low) / (high - low).clamp(min=1e-6) * 0.9999
    pixels = ((share[0] * height).long() * width + (share[1] * width).long())[:, None]
    empty = torch.zeros(len(background), channels, height * width)
    hits = empty[:, :1].scatter_add(2, pixels, torch.ones(()).expand(pixels.shape))
    sums = empty.scatter_add(2, pixels.expand_as(shades), shades)
    bright = (1 + hits).log() / (1 + hits).log().amax(2, keepdim=True)
    mixed = bright * sums / hits.clamp(min=1) + (1 - bright) * background
    return mixed.view(len(background), *shape)


def _grid(shape: Shape) -> tuple[Tensor, Tensor]:
    """Return the pixel centres' coordinates in 0..1, ready to broadcast."""
    height, width = shape[1:]
    down = (torch.arange(height) + 0.5) / height
    right = (torch.arange(width) + 0.5) / width
    return down.view(1, 1, height, 1), right.view(1, 1, 1, width)


def _stretch(values: Tensor) -> Tensor:
    """Rescale each image to 0..1; without this, noise has almost no contrast."""
    low, high = values.amin((1, 2, 3), keepdim=True), values.amax((1, 2, 3), keepdim=True)
    return (values - low) / (high - low).clamp(min=1e-12)
