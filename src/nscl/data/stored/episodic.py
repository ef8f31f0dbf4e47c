"""A few stored samples of old tasks, for replay methods: equally many per class, as in a split."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nscl.data.errors import DataError
from nscl.data.inputs import Inputs, join, rows, to
from nscl.data.tasks import Split
from nscl.data.texts.split import IDS, MASK, TextSplit


class EpisodicMemory:
    """Keeps ``per_class`` randomly chosen samples of every class of every task added.

    >>> from nscl.data import open_stream
    >>> generator = torch.Generator().manual_seed(0)
    >>> memory = EpisodicMemory(per_class=5)
    >>> memory.add(0, open_stream("split-digits-5")[0].train, generator)
    >>> images, labels, task_ids = memory.sample(4, generator)
    >>> images.shape, len(memory)
    (torch.Size([4, 1, 8, 8]), 10)
    """

    def __init__(self, per_class: int) -> None:
        if per_class < 1:
            raise DataError(
                f"an episodic memory needs at least 1 sample per class, not {per_class}"
            )
        self.per_class = per_class
        self._tasks: dict[int, Split] = {}
        self._all: Split | None = None
        self._owners = torch.empty(0, dtype=torch.int64)  # the task of every sample

    def __len__(self) -> int:
        """Return the number of stored samples."""
        return sum(len(split) for split in self._tasks.values())

    @property
    def tasks(self) -> tuple[int, ...]:
        """Return the indices of the stored tasks, in the order in which they were added."""
        return tuple(self._tasks)

    @property
    def bytes(self) -> int:
        """Return the size of samples and labels: the memory budget reported with every result."""
        return sum(split.bytes + split.labels.nbytes for split in self._tasks.values())

    def add(self, task_index: int, split: Split, generator: torch.Generator | None = None) -> None:
        """Choose and keep samples of a task; a class with fewer than ``per_class`` keeps all."""
        if task_index in self._tasks:
            raise DataError(f"task {task_index} is in the episodic memory already")
        labels = split.labels.cpu()
        shuffled = torch.randperm(len(labels), generator=generator)
        rows = [shuffled[labels[shuffled] == label] for label in sorted(set(labels.tolist()))]
        chosen = torch.cat([row[: self.per_class] for row in rows])
        kept = split.holding(to(split.take(chosen), "cpu"), labels[chosen])
        self._keep({**self._tasks, task_index: kept})

    def task(self, task_index: int) -> Split:
        """Return all stored samples of one task."""
        if task_index not in self._tasks:
            raise DataError(
                f"task {task_index} is not in the episodic memory; it has {list(self._tasks)}"
            )
        return self._tasks[task_index]

    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        *,
        tasks: Iterable[int] | None = None,
    ) -> tuple[Inputs, Tensor, Tensor]:
        """Draw ``n`` samples without repetition: (inputs, labels, task ids).

        From all tasks or from those named, each sample equally likely; where there are fewer than
        ``n``, all of them are returned in random order.
        """
        if self._all is None:
            raise DataError("the episodic memory is empty; add a task before sampling from it")
        candidates = None if tasks is None else self._rows(tasks)
        count = len(self._all) if candidates is None else len(candidates)
        chosen = torch.randperm(count, generator=generator)[:n]
        index = chosen if candidates is None else candidates[chosen]
        return self._all.take(index), self._all.labels[index], self._owners[index]

    def shrink(self, per_class: int) -> None:
        """Keep only ``per_class`` samples of each class: for budgets that all classes share.

        They are kept in the random order in which they were drawn, so the first ones are a random
        choice.
        """
        if not 1 <= per_class <= self.per_class:
            raise DataError(f"cannot shrink from {self.per_class} to {per_class} samples per class")
        self.per_class = per_class
        self._keep({i: _first(split, lambda _: per_class) for i, split in self._tasks.items()})

    def trim(self, counts: Mapping[int, Sequence[int]]) -> None:
        """Keep at most ``counts[task][label]`` samples: for budgets that leave a remainder."""
        tasks = {i: _first(split, counts[i].__getitem__) for i, split in self._tasks.items()}
        self._keep(tasks)

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain Python only: loads with ``torch.load(weights_only=True)``."""
        return {
            "per_class": self.per_class,
            "tasks": {i: _saved(s) for i, s in self._tasks.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the contents by ``state``; an invalid state changes nothing."""
        try:
            per_class = int(state["per_class"])
            tasks = {int(index): _loaded(part) for index, part in state["tasks"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"this is not the state of an episodic memory ({error!r})") from None
        self.per_class = per_class
        self._keep(tasks)

    def _keep(self, tasks: dict[int, Split]) -> None:
        """Copy all samples into one split, so that sampling costs the same for any number of tasks.

        Each task's split is a view of its part.
        """
        self._tasks, self._all = {}, None
        if not tasks:
            return
        inputs = join([split.inputs for split in tasks.values()])
        labels = torch.cat([split.labels for split in tasks.values()])
        start = 0
        for index, split in tasks.items():
            part = slice(start, start + len(split))
            self._tasks[index] = split.holding(rows(inputs, part), labels[part])
            start = part.stop
        self._all = next(iter(tasks.values())).holding(inputs, labels)
        counts = torch.tensor([len(split) for split in tasks.values()])
        self._owners = torch.tensor(list(tasks)).repeat_interleave(counts)

    def _rows(self, tasks: Iterable[int]) -> Tensor:
        """Return the row numbers of these tasks' samples."""
        spans = [self._span(index) for index in tasks]
        if not spans:
            raise DataError("no task was named to sample from")
        return torch.cat([torch.arange(start, stop) for start, stop in spans])

    def _span(self, task_index: int) -> tuple[int, int]:
        """Return the first and last row of a task, from the offset of its view."""
        labels = self.task(task_index).labels
        start = int(labels.storage_offset())
        return start, start + len(labels)


def _saved(split: Split) -> dict[str, Any]:
    if isinstance(split, TextSplit):
        return {**split.inputs, "vocabulary": split.vocabulary, "labels": split.labels}
    return {"images": split.images, "labels": split.labels}


def _loaded(part: Mapping[str, Any]) -> Split:
    labels = part["labels"].cpu()
    if "vocabulary" not in part:
        return Split(part["images"].cpu(), labels)
    inputs = {name: part[name].cpu() for name in (IDS, MASK)}
    return TextSplit(inputs, labels, vocabulary=int(part["vocabulary"]))


def _first(split: Split, count: Callable[[int], int]) -> Split:
    """The first ``count(label)`` samples of every class."""
    labels = sorted(set(split.labels.tolist()))
    chosen = [torch.where(split.labels == label)[0][: count(label)] for label in labels]
    return split.select(torch.cat(chosen))
