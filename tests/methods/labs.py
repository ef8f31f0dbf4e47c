"""A laboratory small enough for the slow truth: random images, a little network, plain SGD."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from nscl.data.images.augment import normalise
from nscl.data.streams import for_scenario
from nscl.data.tasks import Split, Task, TaskStream
from nscl.methods.base import Batch, Lab, Method, Phase
from nscl.methods.replay.base import Replay
from nscl.models.heads import GrowingHead, MultiHead, SingleHead, TaskModel
from nscl.models.networks.mlp import MLP


@dataclass(frozen=True)
class Flat:
    """Rates without decay."""

    lr: float = 0.1
    weight_decay: float = 0.0
    name: str = "sgd"
    is_plain: bool = True

    def backbone_lr(self, task: int) -> float:
        return self.lr

    @property
    def heads_lr(self) -> float:
        return self.lr

    @property
    def norms_lr(self) -> float:
        return self.lr


def stream(
    widths: Sequence[int], *, images: int = 40, scenario: str = "task", size: int = 4
) -> TaskStream:
    """Tasks of random images; every task has images of all its classes."""
    generator = torch.Generator().manual_seed(0)
    tasks = []
    for index, width in enumerate(widths):
        shape = (images, 1, size, size)
        pixels = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        split = Split(pixels, torch.arange(images) % width)
        names = tuple(f"{index}.{c}" for c in range(width))
        tasks.append(Task(index, f"task {index}", split, split, tuple(range(width)), names))
    numbered = for_scenario(tasks, scenario)  # type: ignore[arg-type]
    return TaskStream("random", numbered, scenario, (0.5,), (0.25,))  # type: ignore[arg-type]


def lab(
    widths: Sequence[int],
    *,
    backbone: nn.Module | None = None,
    scenario: str = "task",
    optimizer: type[Optimizer] = SGD,
    lr: float = 0.1,
) -> Lab:
    torch.manual_seed(0)
    backbone = backbone or MLP(16, width=8)
    model: TaskModel
    if scenario == "domain":
        model = SingleHead(backbone, widths[0])
    else:
        model = (GrowingHead if scenario == "class" else MultiHead)(backbone, widths)

    def make(groups: Sequence[dict[str, Any]]) -> Optimizer:
        return optimizer(groups, lr=lr)  # type: ignore[call-arg]

    def no_loader(*args: object, **options: object) -> Any:
        raise AssertionError("this laboratory has no loader")

    data = stream(widths, scenario=scenario)
    device = torch.device("cpu")
    return Lab(model, data, device, Flat(lr), 1, 0, make, no_loader)


@dataclass
class Steps:
    """The loop's step, without the loop."""

    method: Method
    task: int

    def __post_init__(self) -> None:
        self.phase = Phase()
        self.method.start_task(self.task)
        self.optimizer = self.method.optimizer(self.task, self.phase)

    def batch(self, size: int = 10, *, start: int = 0) -> Batch:
        split = self.method.lab.stream[self.task].train
        rows = torch.arange(start, start + size)
        return Batch(normalise(split.images[rows], (0.5,), (0.25,)), split.labels[rows], self.task)

    def backward(self, batch: Batch) -> None:
        """As far as the gradients that the optimizer will see."""
        self.optimizer.zero_grad()
        self.method.loss(batch, self.phase).loss.backward()
        self.method.after_backward(batch, self.phase)

    def step(self, batch: Batch) -> None:
        self.backward(batch)
        self.optimizer.step()
        self.method.after_step(batch, self.phase)


def trained(kind: type[Method], tasks: int, widths: Sequence[int], **options: Any) -> Steps:
    """A method that has learned some tasks and stands at the beginning of the next."""
    small_lab = lab(
        widths, backbone=DoubleMLP(16, width=8), scenario=options.pop("scenario", "task")
    )
    small_lab.model.double()
    method = kind(small_lab, kind.options_type(**{"per_class": 4, **options}))
    for task in range(tasks):
        steps = Steps(method, task)
        for start in (0, 10, 20, 30) * 5:
            steps.step(steps.batch(start=start))
        method.leave_phase(task, steps.phase)
        method.end_task(task)
    return Steps(method, tasks)


class Normed(nn.Sequential):
    """A backbone with running statistics."""

    out_features = 8

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU())

    @torch.no_grad()
    def running_mean_of(self, passes: Sequence[Tensor]) -> Tensor:
        """By hand: what these images leave behind, each pass a tenth of the new mean."""
        mean = torch.zeros(8)
        for images in passes:
            mean = 0.9 * mean + 0.1 * self[1](images.flatten(1)).mean(0)
        return mean


def normed(kind: type[Replay], **options: Any) -> Steps:
    """A fourth task's beginning with batch norm, whose running statistics are still untouched."""
    small_lab = lab((2, 2, 2, 2), backbone=Normed())
    small_lab.model.train()
    method = kind(small_lab, kind.options_type(**options))
    for task in range(3):
        method.end_task(task)
    return Steps(method, 3)


class DoubleMLP(MLP):
    """In float64, so that the slow truth can be met to the last digits."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.double())


def weights(model: nn.Module) -> Tensor:
    """All parameters as one vector."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def slow_gradient(model: TaskModel, samples: Sequence[tuple[Tensor, Tensor, int]]) -> Tensor:
    """The mean over samples of each one's gradient through its own head, one after the other."""
    parameters = list(model.parameters())
    total = torch.zeros_like(weights(model))
    for image, label, task in samples:
        loss = nn.functional.cross_entropy(model(image[None], task), label[None])
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        pairs = zip(parameters, found, strict=True)
        total += torch.cat([(p * 0 if g is None else g).detach().reshape(-1) for p, g in pairs])
    return total / len(samples)


def kept_samples(method: Replay, task: int) -> list[tuple[Tensor, Tensor, int]]:
    """Everything in the memory of a task."""
    kept = method.memory.task(task)
    images = normalise(kept.images, (0.5,), (0.25,))
    return [(image, label, task) for image, label in zip(images, kept.labels, strict=True)]


def batch_samples(batch: Batch) -> list[tuple[Tensor, Tensor, int]]:
    return [(i, y, batch.task) for i, y in zip(batch.images, batch.labels, strict=True)]


def memory_loss(method: Replay, task: int) -> float:
    """The present loss on a task's memory."""
    kept = method.memory.task(task)
    logits = method.model(normalise(kept.images, (0.5,), (0.25,)), task)
    return float(nn.functional.cross_entropy(logits, kept.labels).detach())


class OperationCount(TorchDispatchMode):
    """Counts what torch is asked to do: a cost that no busy machine can blur."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def operations_per_step(kind: type[Replay], tasks: Sequence[int], **options: Any) -> list[int]:
    """What one step of each of these tasks asks of torch, if it is corrected."""
    method = kind(lab([2] * (max(tasks) + 2)), kind.options_type(per_class=5, **options))
    counts = []
    for task in range(max(tasks) + 1):
        if task in tasks:
            steps = Steps(method, task)
            with OperationCount() as operations:
                steps.backward(steps.batch())
                for parameter in method._learned:
                    parameter.grad = torch.zeros_like(parameter)
                steps.optimizer.step()
            counts.append(operations.count)
            method.leave_phase(task, steps.phase)
        method.end_task(task)
    return counts
