"""Side classifiers: several heads on the same features that agree here and differ elsewhere.

The mathematics of MUC (Liu et al., ECCV 2020; docs/methods.md, "MUC-MAS") without its training: how
far answers are apart, and how the importances of all classifiers are combined.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from nscl.data.inputs import Inputs
from nscl.methods.regularization.mas import mas_importance
from nscl.methods.regularization.per_sample_grads import Output, Tensors, through
from nscl.models.heads import TaskModel

_EPS = 1e-12
_BACKBONE = "backbone."


def discrepancy(probabilities: Tensor) -> Tensor:
    """D of ``[samples, heads, classes]``: mean absolute difference, summed over pairs of heads.

    >>> discrepancy(torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]))
    tensor(1.)
    """
    gaps = (probabilities.unsqueeze(2) - probabilities.unsqueeze(1)).abs().mean((0, 3))
    return gaps.triu(1).sum()


def stability(main: Tensor, sides: Tensor, *, eps: float = _EPS) -> Tensor:
    """``exp(1 − s / (Ω_main + eps))`` with s the spread of ``[heads, ...]`` around the main one.

    >>> stability(torch.ones(1), torch.tensor([[0.0], [1.0], [2.0]]))
    tensor([1.2014])
    """
    spread = (sides - main).square().mean(0).sqrt()
    return torch.exp(1 - spread / (main + eps))


def combined(main: Tensors, sides: Sequence[Tensors], factor: float | None) -> Tensors:
    """Tensors of one task: ``Ω_main + factor · mean Ω_k``; None is the stability factor."""
    total = {}
    for name, value in main.items():
        each = torch.stack([side[name] for side in sides])
        weight = stability(value, each) if factor is None else factor
        total[name] = value + weight * each.mean(0)
    return total


class SideClassifiers(nn.Linear):
    """``heads`` classifiers as wide as ``like``, held in one layer."""

    def __init__(self, like: nn.Linear, heads: int) -> None:
        super().__init__(like.in_features, heads * like.out_features)
        self.heads = heads
        self.to(like.weight)

    def forward(self, features: Tensor) -> Tensor:
        """Map features to logits ``[samples, heads, classes]``."""
        logits: Tensor = super().forward(features)
        return logits.view(len(logits), self.heads, -1)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Sum over classifiers of the mean cross entropy."""
        return self.heads * F.cross_entropy(logits.flatten(0, 1), self._repeated(labels))

    def accuracy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Percentage of right answers, the mean over classifiers."""
        hits = logits.flatten(0, 1).argmax(1) == self._repeated(labels)
        return 100 * hits.float().mean()

    def _repeated(self, labels: Tensor) -> Tensor:
        return labels.repeat_interleave(self.heads)

    def outputs(self, backbone: nn.Module) -> list[Output]:
        """Each classifier's logits as a function of the network's parameters by name."""
        weights = self.weight.detach().chunk(self.heads)
        biases = self.bias.detach().chunk(self.heads)
        return [_through(backbone, w, b) for w, b in zip(weights, biases, strict=True)]


def _through(backbone: nn.Module, weight: Tensor, bias: Tensor) -> Output:
    def output(theta: dict[str, Tensor], inputs: Inputs) -> Tensor:
        own = {n.removeprefix(_BACKBONE): p for n, p in theta.items() if n.startswith(_BACKBONE)}
        return F.linear(functional_call(backbone, own, (inputs,)), weight, bias)

    return output


def importance_of_task(
    model: TaskModel,
    side: SideClassifiers,
    task: int,
    *,
    parameters: Mapping[str, Tensor],
    batches: Callable[[], Iterable[tuple[Inputs, Tensor]]],
    factor: float | Literal["stability"],
) -> Tensors:
    """MAS through the main head and through each side classifier, put together.

    ``batches()`` is asked once for each of them and must yield the same every time.
    """
    main, *sides = [
        mas_importance(model, batches(), output=output, parameters=parameters)
        for output in (through(model, task), *side.outputs(model.backbone))
    ]
    return combined(main, sides, None if factor == "stability" else factor)
