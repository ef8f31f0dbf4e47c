"""GPM: steps stay out of a growing basis of old inputs (Saha et al., ICLR 2021). METHODS §16.

After each task a few images are run through the network; per layer the basis ``M`` grows until it
explains a threshold of their inputs' energy, and ``ΔW ↦ ΔW − (ΔW M) Mᵀ`` from then on. It is the
other side of Adam-NSCL: an energy criterion on few samples, and directions are never freed again.
The optimizer's update is projected, so Adam, momentum and weight decay keep the promise too.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from nscl.core.projection import Projection
from nscl.core.steered import Steered
from nscl.data.batches import Batches
from nscl.methods.base import Lab, Options
from nscl.methods.bases import Growth, compact, grow, told
from nscl.methods.guarded import Guarded, through_head, unguarded

MOST = 1.0 - 1e-6  # a threshold of 1 would hold directions that are rounding noise


class GPMOptions(Options):
    """How much of the old inputs a basis must explain, and of how many images."""

    threshold: float = Field(0.97, gt=0, lt=1)  # share of the energy, first task
    increment: float = Field(0.003, ge=0)  # added to it with every task
    samples: PositiveInt | None = 125  # images per task; None: all. Rows must outnumber features
    release: bool = False  # the authors' code: one direction fewer on the first task
    norms: Literal["freeze", "ewc", "train"] = "freeze"  # affine parameters after the first task
    stats_augment: bool = False  # images as they are

    def threshold_of(self, task: int) -> float:
        """The threshold at the end of a task, counted from 0."""
        return min(MOST, self.threshold + self.increment * task)


class GPM(Guarded):
    """Keeps a basis per layer and nothing else of old data."""

    options_type = GPMOptions
    tuning: ClassVar = {"threshold": (0.9, 0.95, 0.97, 0.99)}
    memory: Steered

    def __init__(self, lab: Lab, options: GPMOptions) -> None:
        super().__init__(
            lab, options, Steered(lab.model, norms=options.norms, exclude=unguarded(lab))
        )
        self.choices = options

    def end_task(self, task: int) -> None:
        """Let the bases grow."""
        if self.is_last(task):
            return
        seen = self.memory.observe(self._images(task), forward=through_head(task))
        before, projections, spectra = self.memory.projections, {}, {}
        for name, moments in seen.items():
            old = before[name].basis if name in before else None
            dense, noise = moments.written_out()
            growth = self.grown(old, dense, noise, task)
            projections[name] = Projection(compact(growth.basis), removes=True)
            spectra[name] = told(growth.frame, dense, projections[name])
        self.memory.steer(projections, spectra)

    def grown(self, old: Tensor | None, dense: Tensor, noise: Tensor, task: int) -> Growth:
        """A layer's basis after a task with these second moments."""
        return grow(
            old,
            dense,
            threshold=self.choices.threshold_of(task),
            noise=noise,
            release=self.choices.release,
        )

    def _images(self, task: int) -> Batches:
        split = self.training_split(task)
        if self.choices.samples is not None:
            split = split.select(torch.randperm(len(split))[: self.choices.samples])
        augment = None if self.choices.stats_augment else "none"
        return self.lab.loader(split, purpose="samples", augment=augment, shuffle=False)

    def metrics(self) -> dict[str, float]:
        """Free directions, drift inside the held ones, and how many columns hold them."""
        found = super().metrics()
        if found:
            bases = [projection.basis for projection in self.memory.projections.values()]
            found["columns"] = float(sum(int((b != 0).any(-2).sum()) for b in bases))
        return found
