"""Accuracy and loss of a task, with the head, statistics and network that belong to it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F

from nscl.data.batches import Batches
from nscl.methods.base import Method
from nscl.models.per_task_statistics import NormStatistics
from nscl.training.process.device import Ranks


@torch.no_grad()
def accuracy(
    method: Method, statistics: NormStatistics, task: int, batches: Batches, ranks: Ranks
) -> float:
    """Percentage of right answers; the network's mode is restored."""
    hits, seen = 0, 0
    with _as_tested(method, statistics, task):
        for inputs, labels in batches:
            if len(labels):
                hits += int((method.logits(inputs, task).argmax(1) == labels).sum())
                seen += len(labels)
    counts = ranks.sum(torch.tensor([float(hits), float(seen)], dtype=torch.float64))
    return 100.0 * float(counts[0] / counts[1])


@torch.no_grad()
def mean_loss(
    method: Method, statistics: NormStatistics, task: int, batches: Batches, ranks: Ranks
) -> float:
    """Cross-entropy on a task, of the network as it is tested; its mode is restored."""
    total, seen = 0.0, 0
    with _as_tested(method, statistics, task):
        for inputs, labels in batches:
            if len(labels):
                logits = method.logits(inputs, task)
                total += float(F.cross_entropy(logits, labels, reduction="sum"))
                seen += len(labels)
    sums = ranks.sum(torch.tensor([total, float(seen)], dtype=torch.float64))
    return float(sums[0] / sums[1])


@contextmanager
def _as_tested(method: Method, statistics: NormStatistics, task: int) -> Iterator[None]:
    model = method.model
    training = model.training
    model.eval()
    try:
        with method.evaluating(task), statistics.for_task(task):
            yield
    finally:
        model.train(training)
