"""GPM: steps stay out of a growing basis of old inputs (Saha et al., ICLR 2021).

After each task a few samples are run through the network; per layer the basis ``M`` grows until it
explains a threshold of their inputs' energy, and ``ΔW ↦ ΔW − (ΔW M) Mᵀ`` from then on. It is the
other side of Adam-NSCL: an energy criterion on few samples, and directions are never freed again.
The optimizer's update is projected, so Adam, momentum and weight decay keep the promise too.

Specification: docs/methods.md, "GPM".
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from nscl.core.covariance.covariance import Covariance
from nscl.core.model.block import Block
from nscl.core.projection.low_rank_projector import Projection
from nscl.core.projection.spectrum import Spectrum
from nscl.data.batches import Batches
from nscl.methods.base import Lab, Options
from nscl.methods.projection.base import ProjectionMethod, make_memory
from nscl.methods.projection.subspaces.basis_growth import Growth, compact, grow, spectrum_of

MOST = 1.0 - 1e-6  # a threshold of 1 would hold directions that are rounding noise


class GPMOptions(Options):
    """How much of the old inputs a basis must explain, and of how many samples."""

    threshold: float = Field(0.97, gt=0, lt=1)  # share of the energy, first task
    increment: float = Field(0.003, ge=0)  # added to it with every task
    samples: PositiveInt | None = 125  # per task; None: all. Rows must outnumber features
    release: bool = False  # the authors' code: one direction fewer on the first task
    norms: Literal["freeze", "ewc", "train"] = "freeze"  # affine parameters after the first task
    stats_augment: bool = False  # images as they are

    def threshold_of(self, task: int) -> float:
        """The threshold at the end of a task, counted from 0."""
        return min(MOST, self.threshold + self.increment * task)


class GPM(ProjectionMethod):
    """Keeps a basis per layer and nothing else of old data."""

    options_type = GPMOptions
    scenarios = ("task", "domain", "class")
    tuning: ClassVar = {"threshold": (0.8, 0.9, 0.95, 0.97)}

    def __init__(self, lab: Lab, options: GPMOptions) -> None:
        memory = make_memory(
            lab,
            norms=options.norms,
            projector=self.project,
            keep_covariances=False,
        )
        super().__init__(lab, options, memory)
        self.choices = options

    def end_task(self, task: int) -> None:
        """Let the bases grow."""
        if not self.is_last(task):
            self.remember(self._samples(task), task)

    def project(
        self, block: Block, covariance: Covariance, previous: Projection | None
    ) -> tuple[Projection, Spectrum]:
        """A layer's projection after one more task, whose inputs have this covariance."""
        dense = covariance.dense()
        noise = covariance.rounding(dense, block.features)
        old = None if previous is None else previous.basis
        growth = self.grown(old, dense, noise, self.memory.tasks)
        projection = Projection(compact(growth.basis), removes=True)
        return projection, spectrum_of(growth.frame, dense, projection)

    def grown(self, old: Tensor | None, dense: Tensor, noise: Tensor, task: int) -> Growth:
        """A layer's basis after a task with these second moments."""
        return grow(
            old,
            dense,
            threshold=self.choices.threshold_of(task),
            noise=noise,
            release=self.choices.release,
        )

    def _samples(self, task: int) -> Batches:
        split = self.training_split(task)
        if self.choices.samples is not None:
            split = split.select(torch.randperm(len(split))[: self.choices.samples])
        augment = None if self.choices.stats_augment else "none"
        return self.lab.loader(split, purpose="samples", augment=augment, shuffle=False)

    def metrics(self) -> dict[str, float]:
        """Free directions, drift inside the held ones, and how many columns hold them."""
        found = super().metrics()
        if found:
            kept = self.memory.state_dict()["projections"].values()
            found["columns"] = float(sum(int((p["basis"] != 0).any(-2).sum()) for p in kept))
        return found
