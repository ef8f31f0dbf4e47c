"""Test accuracy of a task, with the head, statistics and network that belong to it."""

import torch

from nscl.data.batches import Batches
from nscl.methods.base import Method
from nscl.models.per_task_statistics import NormStatistics
from nscl.training.device import Ranks


@torch.no_grad()
def accuracy(
    method: Method, statistics: NormStatistics, task: int, batches: Batches, ranks: Ranks
) -> float:
    """Percentage of right answers; the network's mode is put back."""
    model = method.model
    training = model.training
    model.eval()
    hits, seen = 0, 0
    try:
        with method.evaluating(task), statistics.for_task(task):
            for images, labels in batches:
                if len(labels):
                    hits += int((method.logits(images, task).argmax(1) == labels).sum())
                    seen += len(labels)
    finally:
        model.train(training)
    counts = ranks.sum(torch.tensor([float(hits), float(seen)], dtype=torch.float64))
    return 100.0 * float(counts[0] / counts[1])
