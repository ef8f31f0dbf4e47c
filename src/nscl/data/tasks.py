"""Splits of samples, tasks, and the stream of tasks that a method learns from.

A `Split` is of uint8 images; `nscl.data.texts.split.TextSplit` is one of texts.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, cast

import torch
from torch import Tensor

from nscl.data.catalogue import Kind, Scenario
from nscl.data.disk.canonical import AugmentName
from nscl.data.errors import DataError
from nscl.data.inputs import Inputs
from nscl.data.splitting import random_numbers

_HOLDOUT_SEED = 20  # with the class it draws what is held out


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Images ``uint8 [N, C, H, W]`` and their labels ``int64 [N]`` in 0..K-1."""

    images: Tensor
    labels: Tensor

    kind: ClassVar[Kind] = "images"

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise DataError(
                "images must be uint8 [N, C, H, W], "
                f"not {self.images.dtype} {list(self.images.shape)}"
            )
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise DataError(
                f"labels must be int64 [{len(self.images)}], "
                f"not {self.labels.dtype} {list(self.labels.shape)}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} images {self.image_shape})"

    @property
    def in_memory(self) -> bool:
        """False for a split that decodes its pictures on demand."""
        return True

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Return (channels, height, width)."""
        _, channels, height, width = self.images.shape
        return channels, height, width

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Return the shape of one sample: what a network is built for."""
        return self.image_shape

    @property
    def inputs(self) -> Inputs:
        """Return all samples, as they are stored."""
        return self.images

    @property
    def bytes(self) -> int:
        """Return the size of the images in memory, also if they are still in files."""
        channels, height, width = self.image_shape
        return len(self) * channels * height * width

    def gather(self, indices: Tensor) -> Tensor:
        """Return the images at these indices; works for every kind of split."""
        return self.images[indices.to(self.images.device)]

    def take(self, indices: Tensor) -> Inputs:
        """Return the samples at these indices, pictures or not."""
        return self.gather(indices)

    def holding(self, inputs: Inputs, labels: Tensor) -> "Split":
        """Return a split of the same kind that has other samples in memory."""
        return Split(cast("Tensor", inputs), labels)

    def select(self, indices: Tensor) -> "Split":
        """Return a split of these rows only."""
        return self.holding(self.take(indices), self.labels[indices.to(self.labels.device)])

    def relabelled(self, labels: Tensor) -> "Split":
        """Return the same samples under other labels."""
        return self.holding(self.inputs, labels)

    def to(self, device: torch.device | str) -> "Split":
        """Return the split on another device, where its batches are then made."""
        return Split(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True, eq=False)
class Task:
    """Some classes to learn: ``classes`` are the original labels, in the order of the labels.

    Labels are 0..K-1, or go on from ``first_label`` where one head grows over all tasks.
    """

    index: int
    name: str
    train: Split
    test: Split
    classes: tuple[int, ...]
    class_names: tuple[str, ...]
    first_label: int = 0

    def __post_init__(self) -> None:
        if len(self.classes) != len(self.class_names):
            raise DataError(
                f"task {self.name!r} has {len(self.classes)} classes but not as many names"
            )
        first, last = self.first_label, self.first_label + len(self.classes) - 1
        for part, split in (("training", self.train), ("test", self.test)):
            if len(split) == 0:
                raise DataError(f"task {self.name!r} has no {part} {split.kind}")
            if int(split.labels.min()) < first or int(split.labels.max()) > last:
                raise DataError(f"task {self.name!r} has {part} labels outside {first}..{last}")


@dataclass(frozen=True, eq=False)
class TaskStream:
    """Tasks in the order in which they are learned, and how their images are normalised.

    Texts are not normalised: their ``mean`` and ``std`` are empty.
    ``scenario`` is "task" (one head per task, the task known at test), "domain" (one head for all)
    or "class" (one growing head: labels go on from task to task). ``augment`` is the benchmark's
    own default. ``note`` is for readers of the results, for example that only a part of the data
    set was on disk.
    """

    name: str
    tasks: tuple[Task, ...]
    scenario: Scenario
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: AugmentName = "none"
    note: str = field(default="")

    def __post_init__(self) -> None:
        if not self.tasks:
            raise DataError(f"stream {self.name!r} has no tasks")
        for task in self.tasks:
            for split in (task.train, task.test):
                if (split.kind, split.input_shape) != (self.kind, self.input_shape):
                    raise DataError(
                        f"task {task.name!r} has {split.kind} that are not {self.input_shape}"
                    )
        channels = self.image_shape[0] if self.kind == "images" else 0
        if not len(self.mean) == len(self.std) == channels:
            raise DataError(f"mean and std need {channels} values, one per channel")
        if self.scenario == "domain" and len(set(self.classes_per_task)) > 1:
            raise DataError(
                f"stream {self.name!r} cannot be a domain stream: its tasks have "
                f"{sorted(set(self.classes_per_task))} classes and one head needs equally many"
            )
        self._check_labels()

    def _check_labels(self) -> None:
        """Labels of one growing head go on from task to task, others begin at 0."""
        grows, start = self.scenario == "class", 0
        names = Counter(name for task in self.tasks for name in task.class_names)
        twice = [name for name, times in names.items() if times > 1]
        if grows and twice:
            raise DataError(
                f"stream {self.name!r} cannot be a class stream: {twice[0]!r} is a class of "
                "several tasks; choose another scenario"
            )
        for task in self.tasks:
            if task.first_label != start:
                raise DataError(
                    f"task {task.name!r} has labels from {task.first_label} on, but a "
                    f"{self.scenario} stream needs them from {start} on: see "
                    "nscl.data.streams.for_scenario"
                )
            start += len(task.classes) if grows else 0

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> Task:
        return self.tasks[index]

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    @property
    def kind(self) -> Kind:
        """Return what is to be classified, "images" or "texts"."""
        return self.tasks[0].train.kind

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Return (channels, height, width) of images, (length, vocabulary) of texts."""
        return self.tasks[0].train.input_shape

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Return (channels, height, width) of every image."""
        return self.tasks[0].train.image_shape

    @property
    def classes_per_task(self) -> tuple[int, ...]:
        """Return how many classes each task has: the widths of the heads."""
        return tuple(len(task.classes) for task in self.tasks)

    def restrict(self, n: int) -> "TaskStream":
        """Return the stream's first ``n`` tasks."""
        if not 1 <= n <= len(self):
            raise DataError(f"{self.name} has {len(self)} tasks; it cannot be restricted to {n}")
        return replace(self, tasks=self.tasks[:n])

    def hold_out(self, share: float) -> "TaskStream":
        """Return the stream with a share of the training samples in place of the test samples.

        The test samples are gone, and nothing is trained on what is held out. Which samples these
        are depends on their class only, not on the order of classes or the number of tasks.
        """
        if not 0 < share < 1:
            raise DataError(f"the share to hold out must be between 0 and 1, not {share}")
        return replace(self, tasks=tuple(_held_out(task, share) for task in self.tasks))


def _held_out(task: Task, share: float) -> Task:
    """The task with ``share`` of each class's training samples as its test samples."""
    chosen = torch.zeros(len(task.train), dtype=torch.bool)
    labels = task.train.labels.cpu()
    for place, (original, name) in enumerate(zip(task.classes, task.class_names, strict=True)):
        rows = torch.nonzero(labels == task.first_label + place)[:, 0]
        count = max(1, round(share * len(rows)))
        if len(rows) and count >= len(rows):
            raise DataError(
                f"holding out {share:g} of {len(rows)} training {task.train.kind} of class "
                f"{name!r} leaves none to train on: choose a smaller share, or more data"
            )
        order = random_numbers(_HOLDOUT_SEED, original % 2**32).permutation(len(rows))
        chosen[rows[torch.from_numpy(order[:count])]] = True
    train, test = (torch.nonzero(part)[:, 0] for part in (~chosen, chosen))
    return replace(task, train=task.train.select(train), test=task.train.select(test))
