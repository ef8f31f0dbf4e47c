"""The heads of the first tasks as one wide layer: all of them in one multiplication.

A loop over heads would make steps more expensive with every task, and so would an optimizer that
holds two small tensors per head. Here the heads' weights lie one below the other in one tensor; in
a mixed batch each sample's softmax runs over the rows of its own head.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nscl.models.heads import TaskModel


class OldHeads:
    """Heads 0..tasks-1 of a model; with ``learn`` the heads themselves move with this layer.

    While they learn, the heads' parameters are views of this layer's two; ``release`` gives them
    memory of their own again.

    >>> from nscl.models import MLP, MultiHead
    >>> model = MultiHead(MLP(64, width=16), [2, 3, 2])
    >>> heads = OldHeads(model, 2, learn=False)
    >>> features, labels, tasks = torch.zeros(4, 16), torch.tensor([1, 0, 2, 1]), [0, 0, 1, 1]
    >>> heads.loss(features, labels, torch.tensor(tasks)).shape
    torch.Size([])
    """

    def __init__(self, model: TaskModel, tasks: int, *, learn: bool) -> None:
        heads = [model.head(task) for task in range(tasks)]
        widths = torch.tensor([head.out_features for head in heads])
        weight = torch.cat([head.weight.detach() for head in heads])
        self.weight = nn.Parameter(weight, requires_grad=learn)
        self.bias = nn.Parameter(torch.cat([h.bias.detach() for h in heads]), requires_grad=learn)
        self._owners = torch.arange(tasks).repeat_interleave(widths).to(weight.device)
        self._starts = (widths.cumsum(0) - widths).to(weight.device)
        self._heads = heads if learn else []
        if learn:
            self._share(widths.tolist())

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return len(self._starts)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """What an optimizer moves to move the heads; nothing if they do not learn."""
        return [self.weight, self.bias] if self.weight.requires_grad else []

    def logits(self, features: Tensor) -> Tensor:
        """The logits of all heads for every sample, side by side: ``[samples, Σ classes]``."""
        return F.linear(features, self.weight, self.bias)

    def own_logits(self, features: Tensor, tasks: Tensor) -> Tensor:
        """The same with −∞ wherever a head is not that of the sample's task."""
        foreign = self._owners != tasks.to(self._owners.device)[:, None]
        return self.logits(features).masked_fill(foreign, -torch.inf)

    def loss(self, features: Tensor, labels: Tensor, tasks: Tensor) -> Tensor:
        """Cross entropy, each sample within its own head; the mean over samples."""
        logits = self.own_logits(features, tasks)
        columns = labels.to(logits.device) + self._starts[tasks.to(self._starts.device)]
        return F.cross_entropy(logits, columns)

    def release(self) -> None:
        """Give the heads memory of their own; their values stay."""
        for head in self._heads:
            head.weight.data, head.bias.data = head.weight.data.clone(), head.bias.data.clone()
        self._heads = []

    def _share(self, widths: list[int]) -> None:
        parts = zip(
            self._heads, self.weight.data.split(widths), self.bias.data.split(widths), strict=True
        )
        for head, weight, bias in parts:
            head.weight.data, head.bias.data = weight, bias


class LearningHeads:
    """The one stack of heads that a method trains: made when asked for, released between phases.

    A resumed run, or a step without an optimizer, finds the heads wherever the network has them.
    """

    def __init__(self, model: TaskModel) -> None:
        self._model = model
        self._stack: OldHeads | None = None

    def stacked(self, tasks: int) -> OldHeads:
        """The heads of the first ``tasks`` tasks, the same object until they are released."""
        if self._stack is None or self._stack.tasks != tasks:
            self.release()
            self._stack = OldHeads(self._model, tasks, learn=True)
        return self._stack

    def release(self) -> None:
        """Give the heads memory of their own."""
        if self._stack is not None:
            self._stack.release()
        self._stack = None
