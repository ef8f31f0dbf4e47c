"""Turn labelled images into a stream of tasks: from arrays, or from any pair of torch datasets.

>>> import torch
>>> from torch.utils.data import TensorDataset
>>> images = torch.randint(0, 256, (40, 3, 8, 8), dtype=torch.uint8)
>>> pictures = TensorDataset(images, torch.arange(40) % 4)
>>> stream = stream_from_datasets(pictures, pictures, tasks=2)
>>> [task.classes for task in stream]
[(0, 1), (2, 3)]
"""

from collections.abc import Callable, Sequence, Sized
from dataclasses import replace
from itertools import accumulate
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from nscl.data.catalogue import Order, Scenario
from nscl.data.disk.canonical import AugmentName
from nscl.data.errors import DataError
from nscl.data.images.items import label_of, pixels_of
from nscl.data.images.resize import resize
from nscl.data.readers.raw import Labels, Pixels, RawDataset
from nscl.data.splitting import assign_classes
from nscl.data.tasks import Split, Task, TaskStream

__all__ = [
    "Split",
    "Task",
    "TaskStream",
    "build_tasks",
    "for_scenario",
    "measure_mean_std",
    "split_raw",
    "stream_from_datasets",
    "tasks_of",
]

Selector = Callable[[tuple[int, ...]], tuple[Split, Split]]
"""Given a task's original labels, returns its training and test splits with labels 0..K-1."""


def build_tasks(
    select: Selector,
    class_names: Sequence[str],
    *,
    tasks: int,
    order: Order = "natural",
    seed: int = 0,
    classes: Sequence[int] | None = None,
) -> tuple[Task, ...]:
    """Assign classes to tasks and select their images.

    ``classes`` are the original labels if they are not 0..K-1.
    """
    groups = assign_classes(len(class_names), tasks, order=order, seed=seed)
    return tasks_of(select, class_names, groups, classes=classes)


def tasks_of(
    select: Selector,
    class_names: Sequence[str],
    groups: Sequence[tuple[int, ...]],
    *,
    names: Sequence[str] | None = None,
    classes: Sequence[int] | None = None,
) -> tuple[Task, ...]:
    """Make a task of each group of classes; ``names`` are the tasks' own, if they have some."""
    built = []
    for index, group in enumerate(groups):
        train, test = select(group)
        own = tuple(class_names[label] for label in group)
        originals = group if classes is None else tuple(classes[label] for label in group)
        name = _task_name(own) if names is None else names[index]
        built.append(Task(index, name, train, test, originals, own))
    return tuple(built)


def for_scenario(tasks: Sequence[Task], scenario: Scenario) -> tuple[Task, ...]:
    """Number the labels as a scenario counts them: one growing head goes on from task to task.

    >>> from nscl.data import open_stream
    >>> [task.first_label for task in for_scenario(open_stream("split-digits-5").tasks, "class")]
    [0, 2, 4, 6, 8]
    """
    widths = [len(task.classes) if scenario == "class" else 0 for task in tasks]
    starts = [0, *accumulate(widths)]
    return tuple(map(_starting_at, tasks, starts[: len(tasks)]))


def _starting_at(task: Task, start: int) -> Task:
    if task.first_label == start:
        return task
    train, test = (
        split.relabelled(split.labels - task.first_label + start)
        for split in (task.train, task.test)
    )
    return replace(task, train=train, test=test, first_label=start)


def split_raw(raw: RawDataset, size: int | None = None) -> Selector:
    """Return the selector of a data set that was read into arrays."""

    def select(group: tuple[int, ...]) -> tuple[Split, Split]:
        train = _cut(raw.train_images, raw.train_labels, group, len(raw.class_names), size)
        test = _cut(raw.test_images, raw.test_labels, group, len(raw.class_names), size)
        return train, test

    return select


def stream_from_datasets(
    train: Dataset[Any],
    test: Dataset[Any],
    *,
    tasks: int,
    order: Order = "natural",
    seed: int = 0,
    name: str = "custom",
    class_names: Sequence[str] | None = None,
    size: int | None = None,
    scenario: Scenario = "task",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    augment: AugmentName = "none",
) -> TaskStream:
    """Split any pair of datasets of ``(image, label)`` into tasks.

    Images are uint8, or floats in 0..1 that are not normalised yet. Labels are integers. Their
    sorted values are the classes, and both datasets must have the same ones; ``class_names`` follow
    that order. If ``mean`` and ``std`` are not given, they are measured on the training images of
    the first task, because later tasks are not known yet.
    """
    raw, classes = _raw(train, test, class_names, size)
    built = build_tasks(
        split_raw(raw), raw.class_names, tasks=tasks, order=order, seed=seed, classes=classes
    )
    measured = measure_mean_std(built[0].train)
    return TaskStream(
        name,
        for_scenario(built, scenario),
        scenario,
        measured[0] if mean is None else tuple(mean),
        measured[1] if std is None else tuple(std),
        augment,
    )


def measure_mean_std(
    split: Split, *, limit: int = 2000
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation per channel in 0..1, from at most ``limit`` images."""
    rows = torch.linspace(0, len(split) - 1, min(limit, len(split))).long()
    pixels = split.gather(rows).double() / 255
    mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3), correction=0)
    # A constant channel must not divide by zero; one grey level is the smallest real spread.
    return tuple(mean.tolist()), tuple(std.clamp(min=1 / 255).tolist())


def _cut(
    images: Pixels, labels: Labels, group: tuple[int, ...], classes: int, size: int | None
) -> Split:
    position = np.full(classes, -1, dtype=np.int64)
    position[list(group)] = np.arange(len(group))
    remapped = position[labels]
    rows = np.flatnonzero(remapped >= 0)
    # Indexing copies: the arrays may be read-only views of a file, tensors must not be.
    pixels = torch.from_numpy(images[rows])
    pixels = pixels if size is None else resize(pixels, (size, size))
    return Split(pixels, torch.from_numpy(remapped[rows]))


def _raw(
    train: Dataset[Any], test: Dataset[Any], names: Sequence[str] | None, size: int | None
) -> tuple[RawDataset, list[int]]:
    """Both datasets as arrays with labels 0..K-1, and the labels that they had."""
    train_images, train_labels = _read_dataset(train, "the training dataset", size)
    test_images, test_labels = _read_dataset(test, "the test dataset", size)
    classes = np.unique(train_labels)
    if not np.array_equal(classes, np.unique(test_labels)):
        differing = np.setxor1d(classes, np.unique(test_labels)).tolist()
        raise DataError(f"training and test datasets do not have the same classes: {differing}")
    names = tuple(map(str, classes.tolist())) if names is None else tuple(names)
    if len(names) != len(classes):
        raise DataError(f"there are {len(classes)} classes but {len(names)} class_names")
    train_rows, test_rows = (np.searchsorted(classes, x) for x in (train_labels, test_labels))
    return RawDataset(train_images, train_rows, test_images, test_rows, names), classes.tolist()


def _read_dataset(dataset: Dataset[Any], what: str, size: int | None) -> tuple[Pixels, Labels]:
    count = len(cast("Sized", dataset))
    if count == 0:
        raise DataError(f"{what} is empty")
    images: list[Tensor] = []
    labels: list[int] = []
    for index in range(count):
        image, label = dataset[index][:2]
        pixels = pixels_of(image, where=f"item {index} of {what}")
        images.append(pixels if size is None else resize(pixels[None], (size, size))[0])
        labels.append(label_of(label, where=f"item {index} of {what}"))
        if images[-1].shape != images[0].shape:
            raise DataError(
                f"item {index} of {what} has shape {list(images[-1].shape)}, item 0 "
                f"{list(images[0].shape)}; pass size=N to resize all to N × N"
            )
    return torch.stack(images).numpy(), np.array(labels, dtype=np.int64)


def _task_name(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} … {names[-1]}"
