"""Domain streams: the same classes in every task, under another permutation or rotation."""

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nscl.data.catalogue import Order
from nscl.data.splitting import ordered, random_numbers
from nscl.data.tasks import Split, Task

_CHUNK = 4096

Change = Callable[[Tensor], Tensor]


def permutations(shape: tuple[int, int, int], tasks: int, seed: int) -> list[tuple[str, Change]]:
    """Return one fixed permutation of the pixels per task; the first task's is the identity.

    Task i's permutation depends on the seed and on i only: a longer stream starts with the same
    tasks.
    """
    count = shape[1] * shape[2]
    changes: list[tuple[str, Change]] = [("unpermuted", lambda images: images)]
    for index in range(1, tasks):
        order = torch.from_numpy(random_numbers(seed, index).permutation(count))
        changes.append((f"permutation {index}", _permuting(order)))
    return changes


def rotations(tasks: int, seed: int) -> list[tuple[str, Change]]:
    """Return one angle per task, drawn from equal shares of 0°–180° as GEM's rotated MNIST does.

    (Lopez-Paz and Ranzato, 2017: ``data/mnist_rotations.py``.)
    """
    shares = (np.arange(tasks) + random_numbers(seed).random(tasks)) / tasks
    return [(f"rotated {180 * share:.1f}°", _rotating(180 * share)) for share in shares.tolist()]


def rotate(images: Tensor, degrees: float) -> Tensor:
    """Turn ``uint8 [N, C, H, W]`` counter-clockwise about its centre, bilinear, zeros outside."""
    angle = math.radians(degrees)
    height, width = images.shape[-2:]
    sin, cos = math.sin(angle), math.cos(angle)
    # Grid coordinates run over -1..1 on both axes, so a non-square image needs its aspect ratio.
    matrix = torch.tensor([[cos, -sin * height / width, 0.0], [sin * width / height, cos, 0.0]])
    parts = []
    for part in torch.split(images, _CHUNK):
        grid = F.affine_grid(matrix.expand(len(part), 2, 3), list(part.shape), align_corners=False)
        turned = F.grid_sample(part.float(), grid, mode="bilinear", align_corners=False)
        parts.append(turned.round().to(torch.uint8))
    return torch.cat(parts)


def domain_tasks(
    train: Split,
    test: Split,
    class_names: tuple[str, ...],
    changes: list[tuple[str, Change]],
    *,
    order: Order = "natural",
    seed: int = 0,
) -> tuple[Task, ...]:
    """Return one task per change, all with all the classes; a random order shuffles the changes."""
    classes = tuple(range(len(class_names)))
    tasks = []
    for index, place in enumerate(ordered(len(changes), order=order, seed=seed)):
        name, change = changes[place]
        changed, changed_test = (Split(change(part.images), part.labels) for part in (train, test))
        tasks.append(Task(index, name, changed, changed_test, classes, class_names))
    return tuple(tasks)


def _permuting(order: Tensor) -> Change:
    return lambda images: images.flatten(2)[:, :, order].view_as(images)


def _rotating(degrees: float) -> Change:
    return lambda images: rotate(images, degrees)
