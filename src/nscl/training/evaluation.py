"""Accuracy and loss of a task, with the head, statistics and network that belong to it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor

from nscl.data.batches import Batches
from nscl.methods.base import Method
from nscl.models.per_task_statistics import NormStatistics
from nscl.training.process.device import Ranks


def accuracy(
    method: Method, statistics: NormStatistics, task: int, batches: Batches, ranks: Ranks
) -> float:
    """Percentage of right answers; the network's mode is restored."""
    return 100.0 * _mean(_hits, method, statistics, task, batches, ranks)


def mean_loss(
    method: Method, statistics: NormStatistics, task: int, batches: Batches, ranks: Ranks
) -> float:
    """Cross-entropy on a task, of the network as it is tested; its mode is restored."""
    return _mean(_losses, method, statistics, task, batches, ranks)


def _hits(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.argmax(1) == labels).sum()


def _losses(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels, reduction="sum")


@torch.no_grad()
def _mean(
    figure: Callable[[Tensor, Tensor], Tensor],
    method: Method,
    statistics: NormStatistics,
    task: int,
    batches: Batches,
    ranks: Ranks,
) -> float:
    """A figure summed over each batch, divided by the samples of all ranks."""
    total, seen = 0.0, 0
    with _as_tested(method, statistics, task):
        for inputs, labels in batches:
            if len(labels):
                total += float(figure(method.logits(inputs, task), labels))
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
