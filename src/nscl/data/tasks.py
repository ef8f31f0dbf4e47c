"""What a stream is made of: splits of uint8 images, tasks of classes, and the stream itself."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from nscl.data.canonical import AugmentName
from nscl.data.catalogue import Scenario
from nscl.data.errors import DataError


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Images ``uint8 [N, C, H, W]`` and their labels ``int64 [N]`` in 0..K-1."""

    images: Tensor
    labels: Tensor

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
        """False for a split that decodes its pictures when they are asked for."""
        return True

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Return (channels, height, width)."""
        _, channels, height, width = self.images.shape
        return channels, height, width

    @property
    def bytes(self) -> int:
        """Return what the images take in memory, or would."""
        channels, height, width = self.image_shape
        return len(self) * channels * height * width

    def gather(self, indices: Tensor) -> Tensor:
        """Return the images at these indices: works for every kind of split."""
        return self.images[indices.to(self.images.device)]

    def select(self, indices: Tensor) -> "Split":
        """Return a split of these rows only."""
        return Split(self.gather(indices), self.labels[indices.to(self.labels.device)])

    def to(self, device: torch.device | str) -> "Split":
        """Return the split on another device, so that batches are cut there."""
        return Split(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True, eq=False)
class Task:
    """Some classes to learn: ``classes`` are the original labels, in the order of 0..K-1."""

    index: int
    name: str
    train: Split
    test: Split
    classes: tuple[int, ...]
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.classes) != len(self.class_names):
            raise DataError(
                f"task {self.name!r} has {len(self.classes)} classes but not as many names"
            )
        for part, split in (("training", self.train), ("test", self.test)):
            if len(split) == 0:
                raise DataError(f"task {self.name!r} has no {part} images")
            if int(split.labels.min()) < 0 or int(split.labels.max()) >= len(self.classes):
                raise DataError(
                    f"task {self.name!r} has {part} labels outside 0..{len(self.classes) - 1}"
                )


@dataclass(frozen=True, eq=False)
class TaskStream:
    """Tasks in the order in which they are learned, and how their images are normalised.

    ``scenario`` is "task" (one head per task, the task known at test) or "domain" (one head for
    all). ``augment`` is the benchmark's own default. ``note`` says what a reader of the numbers
    must know, such as that only a part of the data set was on disk.
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
            if (
                task.train.image_shape != self.image_shape
                or task.test.image_shape != self.image_shape
            ):
                raise DataError(f"task {task.name!r} has images that are not {self.image_shape}")
        if not len(self.mean) == len(self.std) == self.image_shape[0]:
            raise DataError(f"mean and std need {self.image_shape[0]} values, one per channel")
        if self.scenario == "domain" and len(set(self.classes_per_task)) > 1:
            raise DataError(
                f"stream {self.name!r} cannot be a domain stream: its tasks have "
                f"{sorted(set(self.classes_per_task))} classes and one head needs equally many"
            )

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> Task:
        return self.tasks[index]

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

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
