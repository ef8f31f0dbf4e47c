"""One shared backbone under a head per task, under one head for all, or under one that grows.

All are called as ``model(x, task)``, so little else needs to know the scenario. The protocol trains
during task ``t`` what answers for it: give the optimizer ``backbone_parameters()`` and
``answering_parameters(t)`` and no other head. (A head whose gradient is zero still moves under Adam
with weight decay.)
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nscl.models.errors import ModelError
from nscl.models.networks.shapes import check_size
from nscl.models.norms import norm_layers

NamedParameters = Iterator[tuple[str, nn.Parameter]]


class TaskModel(nn.Module, ABC):
    """A backbone and its heads; names of parameters are qualified from this module on.

    ``features`` is the width of the backbone's output, by default its ``out_features``.
    """

    def __init__(self, backbone: nn.Module, *, features: int | None = None) -> None:
        super().__init__()
        width = getattr(backbone, "out_features", None) if features is None else features
        if width is None:
            raise ModelError(
                f"{type(backbone).__name__} has no out_features: give features=... for its heads"
            )
        self.backbone = backbone
        self.features = check_size("out_features", width)

    @property
    @abstractmethod
    def classes_per_task(self) -> list[int]:
        """The number of classes of each head."""

    @abstractmethod
    def head(self, task: int) -> nn.Linear:
        """Return the head that answers for ``task``, counted from 0."""

    @abstractmethod
    def add_head(self, classes: int) -> int:
        """Make the model ready for one more task; return the index of the head that serves it."""

    def answering(self, task: int) -> Sequence[int]:
        """The tasks whose heads answer together for ``task``: its own alone."""
        return (task,)

    def softmax_sizes(self, tasks: Sequence[int]) -> list[int]:
        """How many logits share each softmax where the heads of ``tasks`` lie side by side."""
        return [self.head(task).out_features for task in tasks]

    def forward(self, x: Any, task: int | Sequence[int]) -> Tensor:
        """Map what the backbone takes, ``[N, ...]``, to the logits of ``task``, ``[N, classes]``.

        Images are one tensor, texts a dictionary of token ids and attention mask. Of several tasks
        the logits lie side by side, ``[N, Σ classes]``.
        """
        features = self.backbone(x)
        if isinstance(task, Sequence):
            return self.side_by_side(features, task)
        return self.logits(features, task)

    def logits(self, features: Tensor, task: int) -> Tensor:
        """Map the backbone's features to the logits of ``task``."""
        # Layer by layer, not as one product: a memory sees what is fed to a module.
        parts: list[Tensor] = [self.head(each)(features) for each in self.answering(task)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def side_by_side(self, features: Tensor, tasks: Iterable[int], *, learn: bool = True) -> Tensor:
        """The logits of several heads for the same features, in one product.

        Without ``learn``, the heads are not part of the graph and collect no gradients.
        """
        heads = [self.head(task) for task in tasks]
        with torch.set_grad_enabled(learn and torch.is_grad_enabled()):
            weight = torch.cat([head.weight for head in heads])
            bias = torch.cat([head.bias for head in heads])
        return F.linear(features, weight, bias)

    def backbone_parameters(self, *, norms: bool = True) -> NamedParameters:
        """Name the shared parameters; ``norms=False`` leaves out those of ``norm_parameters``."""
        skipped = set() if norms else {id(p) for _, p in self.norm_parameters()}
        for name, parameter in self.backbone.named_parameters("backbone"):
            if id(parameter) not in skipped:
                yield name, parameter

    def norm_parameters(self) -> NamedParameters:
        """Name the backbone's parameters that belong to normalisation layers, found by type."""
        seen: set[int] = set()
        for prefix, layer in norm_layers(self.backbone, prefix="backbone"):
            for name, parameter in layer.named_parameters(prefix, recurse=False):
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield name, parameter

    def head_parameters(self, task: int) -> NamedParameters:
        """Name the parameters of the head that answers for ``task``."""
        head = self.head(task)
        prefix = next(name for name, module in self.named_modules() if module is head)
        yield from head.named_parameters(prefix)

    def answering_parameters(self, task: int) -> NamedParameters:
        """Name the parameters of all heads that answer for ``task``: those that learn it."""
        for each in self.answering(task):
            yield from self.head_parameters(each)

    def _new_head(self, classes: int) -> nn.Linear:
        check_size("the number of classes of a task", classes)
        like = next((p for p in self.backbone.parameters() if p.is_floating_point()), None)
        if like is None:
            return nn.Linear(self.features, classes)
        return nn.Linear(self.features, classes, device=like.device, dtype=like.dtype)


class MultiHead(TaskModel):
    """Task-incremental: every task has its own linear head, the task is known when testing.

    >>> from nscl.models import MLP
    >>> model = MultiHead(MLP(64, width=16), [2, 3])
    >>> import torch
    >>> model(torch.zeros(5, 1, 8, 8), task=1).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        backbone: nn.Module,
        classes_per_task: Sequence[int] = (),
        *,
        features: int | None = None,
    ) -> None:
        super().__init__(backbone, features=features)
        self.heads = nn.ModuleList()
        for classes in classes_per_task:
            self.add_head(classes)

    @property
    def classes_per_task(self) -> list[int]:
        """The number of classes of each head."""
        return [self.head(task).out_features for task in range(len(self.heads))]

    def head(self, task: int) -> nn.Linear:
        """Return the head of ``task``; one that is not there is an error, negative ones too."""
        if type(task) is not int or not 0 <= task < len(self.heads):
            raise ModelError(f"there is no head for task {task!r}: {len(self.heads)} heads, from 0")
        return cast("nn.Linear", self.heads[task])

    def add_head(self, classes: int) -> int:
        """Append a head with fresh weights, drawn now from torch's generator; return its index."""
        self.heads.append(self._new_head(classes))
        return len(self.heads) - 1


class GrowingHead(MultiHead):
    """Class-incremental: one linear head over all classes seen so far, grown by every task.

    ``model(x, task)`` has the logits of all classes of tasks 0 to ``task``, in one softmax: ask for
    the newest task, whatever the sample is of. The rows of each task's classes are parameters of
    their own, ``heads.<task>``, so that an optimizer can train old rows or leave them alone. Rows
    of tasks to come exist already, as heads do, and are part of no answer yet.

    >>> from nscl.models import MLP
    >>> model = GrowingHead(MLP(64, width=16), [2, 3, 2])
    >>> import torch
    >>> [model(torch.zeros(5, 1, 8, 8), task).shape[1] for task in range(3)]
    [2, 5, 7]
    """

    def answering(self, task: int) -> Sequence[int]:
        """All tasks up to ``task``, which must be there."""
        self.head(task)
        return range(task + 1)

    def softmax_sizes(self, tasks: Sequence[int]) -> list[int]:
        """One softmax for all."""
        return [sum(super().softmax_sizes(tasks))]


class SingleHead(TaskModel):
    """Domain-incremental: classes stay, their pictures change; one head answers for all tasks."""

    def __init__(self, backbone: nn.Module, classes: int, *, features: int | None = None) -> None:
        super().__init__(backbone, features=features)
        self.shared_head = self._new_head(classes)

    @property
    def classes_per_task(self) -> list[int]:
        """The number of classes of the one head."""
        return [self.shared_head.out_features]

    def head(self, task: int) -> nn.Linear:
        """Return the one head, whatever the task."""
        check_size("task", task, least=0)
        return self.shared_head

    def add_head(self, classes: int) -> int:
        """Check that the one head fits the new task too, which it serves without any change."""
        if classes != self.shared_head.out_features:
            raise ModelError(
                f"one head for all tasks has {self.shared_head.out_features} classes, the new task "
                f"has {classes}: use the task scenario (a head per task)"
            )
        return 0
