"""The one pass over a finished task's pictures from which importances are taken."""

from typing import TypeVar

import torch
from pydantic import PositiveInt

from nscl.data.batches import Batches
from nscl.data.tasks import Split
from nscl.methods.base import Lab, Options
from nscl.methods.regularization.penalty import PenaltyMethod, PenaltyOptions
from nscl.methods.regularization.per_sample_grads import Unit

_BATCH = 256  # samples per forward pass where the batch size has no meaning


class PassOptions(Options):
    """Which of a finished task's pictures importances are taken from.

    A thousand single samples of a reduced ResNet-18 (width 16) take a processor's core 12 s.
    """

    samples: PositiveInt | None = 1000  # at most this many, drawn at random; None: all
    stats_augment: bool = True  # as in training, or the plain pictures


class ImportanceOptions(PenaltyOptions, PassOptions):
    """A penalty whose importances are taken after a task."""


S = TypeVar("S", bound=ImportanceOptions)


class ImportanceMethod(PenaltyMethod[S]):
    """A penalty whose importances are taken in one pass over the finished task."""

    def finished_task(self, task: int, *, unit: Unit = "sample") -> Batches:
        """The batches of that pass."""
        split = self.training_split(task)
        return pass_batches(self.lab, split, task, self.choices, unit=unit)


def pass_batches(
    lab: Lab, split: Split, task: int, options: PassOptions, *, unit: Unit = "sample"
) -> Batches:
    """The pictures, the same ones in the same order every time; batches as in training if need be.

    The order is drawn from the run's seed and the task alone: folders list their pictures class by
    class, and surrogates by batch want mixed ones. The loader itself shuffles nothing, as a
    shuffled one may leave out a last, small batch.
    """
    generator = torch.Generator().manual_seed((lab.seed * 1_000_003 + task) % 2**63)
    order = torch.randperm(len(split), generator=generator)
    return lab.loader(
        split.select(order[: options.samples]),
        purpose="importance",
        augment=None if options.stats_augment else "none",
        shuffle=False,
        batch_size=_BATCH if unit == "sample" else None,
    )
