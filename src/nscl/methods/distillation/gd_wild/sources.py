"""Where GD-WILD's images come from besides the task's own: a coreset of old ones, and the wild."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from nscl.data.stored.episodic import EpisodicMemory
from nscl.data.tasks import Split
from nscl.errors import NsclError
from nscl.methods.base import Batch, Lab
from nscl.methods.distillation.gd_wild.losses import choose_external, shares, weight_table
from nscl.methods.external_images import ExternalImages, PoolOptions, prepared
from nscl.methods.rank_rng import drawn_rows
from nscl.models.heads import TaskModel


@dataclass(frozen=True)
class Mixed:
    """Images of a step: the batch, then old ones, then external ones.

    Labels are numbered consecutively over the heads of all tasks; the next number means external.
    """

    images: Tensor
    labels: Tensor
    labelled: int


class SourceOptions(PoolOptions):
    """Which images besides the task's own; ``pool=none`` does without external ones."""

    used_with: ClassVar[Mapping[str, str]] = {
        "random_share": "pool not none",
        "rank_by": "pool not none",
    }

    budget: PositiveInt = 2000  # images of old tasks in all; the newest classes have the remainder
    random_share: float = Field(0.7, ge=0, le=1)  # of external images; P takes the rest for old
    rank_by: Literal["logit", "probability"] = "logit"  # how P picks those


class Sources:
    """The coreset, with a budget for all classes together, and a task's external images."""

    def __init__(self, lab: Lab, options: SourceOptions) -> None:
        sizes = lab.stream.classes_per_task
        if options.budget < sum(sizes):
            raise NsclError(
                f"a coreset of {options.budget} images cannot hold one of each of {sum(sizes)} "
                "classes: raise --method.budget"
            )
        self.lab, self.options = lab, options
        self.pool = None if options.pool == "none" else ExternalImages(lab, options)
        self.coreset: EpisodicMemory | None = None
        self.external: Tensor | None = None  # uint8, this task's choice
        self._offsets = [sum(sizes[:task]) for task in range(len(sizes) + 1)]
        self._old: Split | None = None  # the coreset in one piece, labels numbered through
        self._table: tuple[int, Tensor] | None = None

    @property
    def bytes(self) -> int:
        """What is kept of old tasks."""
        return 0 if self.coreset is None else self.coreset.bytes

    def start_task(self, task: int, previous: TaskModel | None) -> None:
        """Choose as many external images as there are labelled ones, or all there are."""
        if self.pool is None:
            return
        pool = self.pool.of_task(task)
        count = len(self.lab.stream[task].train) + self._old_images
        scores = None if previous is None else self._scores(previous, pool.images, task)
        share = self.options.random_share
        rows = choose_external(len(pool), count, scores=scores, random_share=share)
        self.external = pool.images[rows]

    @torch.no_grad()
    def _scores(self, previous: TaskModel, images: Tensor, task: int) -> Tensor:
        """How much the previous network takes each image for each old class."""
        split = Split(images, torch.zeros(len(images), dtype=torch.int64))
        loader = self.lab.loader(split, purpose="scores", augment="none", shuffle=False)
        batches = replace(loader, shard=(0, 1))
        parts = [previous.side_by_side(previous.backbone(x), range(task)) for x, _ in batches]
        logits = torch.cat(parts)
        return logits.softmax(1) if self.options.rank_by == "probability" else logits

    @property
    def _old_images(self) -> int:
        return 0 if self._old is None else len(self._old)

    def mix(self, batch: Batch) -> Mixed:
        """A step's images: old ones in their share, external ones as many as labelled ones."""
        own = batch.labels + self._offsets[batch.task]
        images, labels, known = [], [own], len(own)
        if self._old is not None:
            number = max(1, round(self._share(batch.task) * len(own)))
            chosen = self._old.select(drawn_rows(len(self._old), number))
            images.append(chosen.images)
            labels.append(chosen.labels.to(own.device))
            known += number
        if self.external is not None:
            images.append(self.external[drawn_rows(len(self.external), known)])
            labels.append(torch.full_like(own[:1], self._offsets[batch.task + 1]).expand(known))
        others = [prepared(self.lab, torch.cat(images))] if images else []
        return Mixed(torch.cat([batch.images, *others]), torch.cat(labels), known)

    def _share(self, task: int) -> float:
        """Old images for each new one: every one once per epoch, but never more than new ones.

        The bound keeps a step's cost where it is when tasks are small beside the coreset.
        """
        return min(1.0, self._old_images / len(self.lab.stream[task].train))

    def weights(self, task: int, labels: Tensor) -> Tensor:
        """Weights of samples, ``[3, samples]``, from how often an epoch shows their class."""
        if self._table is None or self._table[0] != task:
            counts = weight_table(self.counts(task), self._offsets[task]).to(labels.device)
            self._table = task, counts
        return self._table[1][:, labels]

    def counts(self, task: int) -> Tensor:
        """How many images of each seen class an epoch shows."""
        size = self._offsets[task + 1]
        new = self.lab.stream[task].train.labels.cpu() + self._offsets[task]
        counts = torch.bincount(new, minlength=size).float()
        if self._old is not None:
            shown = self._share(task) * len(new) / len(self._old)
            counts += shown * torch.bincount(self._old.labels, minlength=size)
        return counts

    def keep(self, task: int) -> None:
        """Shrink the coreset to make room, then add the task: equally many of every class.

        Classes are numbered through in the order in which they came, so a class that has one of the
        remainder now had it before, or has fewer images than before: nothing needs to grow.
        """
        each = shares(self.options.budget, self._offsets[task + 1])
        if self.coreset is None:
            self.coreset = EpisodicMemory(max(each))
        else:
            self.coreset.shrink(max(each))
        self.coreset.add(task, self.lab.stream[task].train)
        spans = pairwise(self._offsets)
        self.coreset.trim({index: each[start:stop] for index, (start, stop) in enumerate(spans)})
        self._join(self.coreset)

    def _join(self, coreset: EpisodicMemory) -> None:
        """Put all tasks' images together once, so that drawing costs the same however many."""
        parts = [coreset.task(index) for index in coreset.tasks]
        labels = [coreset.task(index).labels + self._offsets[index] for index in coreset.tasks]
        self._old = Split(torch.cat([part.images for part in parts]), torch.cat(labels))

    def notes(self) -> dict[str, Any]:
        """The pool's name and the coreset's budget."""
        pool = {"pool": "none"} if self.pool is None else self.pool.notes()
        return {**pool, "coreset": self.options.budget}

    def state_dict(self) -> dict[str, Any]:
        """Coreset, external images and where they are from."""
        return {
            "coreset": None if self.coreset is None else self.coreset.state_dict(),
            "external": self.external,
            "pool": None if self.pool is None else self.pool.name,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        if state["coreset"] is not None:
            self.coreset = EpisodicMemory(1)
            self.coreset.load_state_dict(state["coreset"])
            self._join(self.coreset)
        self.external = state["external"]
        if self.pool is not None:
            self.pool.expect(state["pool"])
