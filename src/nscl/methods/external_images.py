"""Images that belong to no task, for methods that learn from them: a new draw for every task.

``auto`` is replaced by the name of a pool before the run is named, so the pool is part of its
configuration. The pool that was opened is part of the result's notes.
"""

from dataclasses import replace
from pathlib import Path
from typing import Self, cast

import torch
from pydantic import Field
from torch import Tensor

from nscl.core.distributed.collectives import rank_and_world
from nscl.data.tasks import Split
from nscl.data.unlabelled.pools import DEFAULT_POOL_SIZE, UnlabelledPool, choose_pool, open_pool
from nscl.errors import NsclError
from nscl.methods.base import Lab, Options

_BORROWED = 1000  # images of the task at hand that the procedural pool makes some of its own from


class PoolOptions(Options):
    """Which unlabelled images: a benchmark, ``folder:PATH``, ``procedural`` or ``auto``."""

    pool: str = "auto"
    pool_size: int = Field(DEFAULT_POOL_SIZE, ge=1)  # at most this many of them

    def settled(self, benchmark: str, data_dir: Path | None) -> Self:
        """With the pool's name in place of ``auto``."""
        pool = choose_pool(benchmark, data_dir) if self.pool == "auto" else self.pool
        return self.model_copy(update={"pool": pool})


class ExternalImages:
    """The pool of a run, with the one of the task at hand kept open."""

    def __init__(self, lab: Lab, options: PoolOptions) -> None:
        self.lab, self.options = lab, options
        self.name: str | None = None
        self._open: tuple[int, UnlabelledPool] | None = None
        if options.pool not in ("auto", "procedural"):
            # A missing pool is an error now, before the run makes a folder.
            open_pool(options.pool, like=lab.stream, size=1, data_dir=lab.data_dir)

    def of_task(self, task: int) -> UnlabelledPool:
        """The pool of a task: another draw for each, the same again when a run resumes."""
        if self._open is None or self._open[0] != task:
            self._open = task, self._opened(task)
        return self._open[1]

    def expect(self, name: str | None) -> None:
        """Hold a resumed run to the pool it began with."""
        self.name = name

    def notes(self) -> dict[str, str]:
        """The pool's name, to stand beside every number."""
        return {} if self.name is None else {"pool": self.name}

    def _opened(self, task: int) -> UnlabelledPool:
        seed = 1000 * self.lab.seed + task
        split = self.lab.stream[task].train
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randperm(len(split), generator=generator)[:_BORROWED]
        pool = open_pool(
            self.options.pool,
            like=self.lab.stream,
            size=self.options.pool_size,
            data_dir=self.lab.data_dir,
            seed=seed,
            current=split.gather(rows),
        )
        if self.name not in (None, pool.name):
            raise NsclError(
                f"the run began with the unlabelled pool {self.name}, now --method.pool "
                f"{self.options.pool} opens {pool.name}: put the first one back, or start a new run"
            )
        self.name = pool.name
        return pool


def prepared(lab: Lab, images: Tensor, *, shared: bool = False) -> Tensor:
    """Stored images as the network sees those of a training batch: augmented, normalised, moved.

    Draws come from torch's global generator, so a step's are the same whenever it is made. Images
    are this process's own (``drawn_rows``): processes of one run that draw together draw different
    augmentations. With ``shared`` all of them bring the same images and want the same ones.
    """
    if len(images) == 0:
        return images.to(lab.device, torch.float32)
    rank, ranks = (0, 1) if shared else rank_and_world()
    everyone = images.repeat_interleave(ranks, 0)  # of the rows of others only the number counts
    split = Split(everyone, torch.zeros(len(everyone), dtype=torch.int64))
    loader = lab.loader(split, purpose="prepared", shuffle=False, batch_size=len(everyone))
    return cast("Tensor", next(iter(replace(loader, generator=None, shard=(rank, ranks))))[0])
