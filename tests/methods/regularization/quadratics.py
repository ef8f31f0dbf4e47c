"""One-parameter networks and a laboratory around them: importances that fit on a napkin; and a
network small enough for a loop over samples."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from nscl.data import open_stream
from nscl.methods.base import Batch, Lab, Method, Phase
from nscl.models import ConvNet, MultiHead
from nscl.models.heads import TaskModel
from nscl.training.config.schema import Optim


class Scale(nn.Module):
    """``f(x) = w·x``, one weight; logistic: logits ``(0, w·x)``, whose softmax is a sigmoid."""

    def __init__(self, weight: float, *, logistic: bool = False) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(weight, dtype=torch.float64))
        self.logistic = logistic

    def forward(self, x: Tensor, task: int) -> Tensor:
        y = self.w * x[:, :1]
        return torch.cat([torch.zeros_like(y), y], 1) if self.logistic else y


class Point(nn.Module):
    """A backbone whose only parameter is ``w``."""

    out_features = 1

    def __init__(self, size: int = 1) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(size, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.w.sum().expand(len(x), 1)


def data(*values: float, label: int = 0) -> list[tuple[Tensor, Tensor]]:
    """One batch of one-pixel samples."""
    x = torch.tensor(values, dtype=torch.float64)[:, None]
    return [(x, torch.full((len(values),), label))]


def network(classes: int = 3) -> MultiHead:
    """Convolutions, and BatchNorm with statistics worth spoiling."""
    model = MultiHead(ConvNet(1, width=3, depth=2), [2, classes]).double()
    model(torch.randn(16, 1, 6, 6, dtype=torch.float64), 1)
    return model


def pictures(*sizes: int, classes: int = 3) -> list[tuple[Tensor, Tensor]]:
    return [
        (torch.randn(n, 1, 6, 6, dtype=torch.float64), torch.randint(0, classes, (n,)))
        for n in sizes
    ]


def lab(model: TaskModel, *, lr: float = 0.1, make: Any = torch.optim.SGD, tasks: int = 5) -> Lab:
    """A laboratory without data: methods are driven by hand."""
    return Lab(
        model=model,
        stream=open_stream("split-digits-5").restrict(tasks),
        device=torch.device("cpu"),
        rates=Optim(lr=lr),
        epochs=1,
        seed=0,
        make_optimizer=lambda groups: make(groups, lr=lr),
        loader=lambda *args, **options: data(0.0),  # type: ignore[arg-type, return-value]
    )


def point(**options: Any) -> Lab:
    """A laboratory with one weight at 0."""
    return lab(MultiHead(Point(), [2] * 5), **options)


def descend(method: Method, loss: Callable[[], Tensor], *, steps: int, task: int = 0) -> None:
    """The loop's own order of hooks, with any loss."""
    batch, phase = Batch(torch.zeros(1, 1), torch.zeros(1), task), Phase()
    optimizer = method.optimizer(task, phase)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        method.after_backward(batch, phase)
        optimizer.step()
        method.after_step(batch, phase)
