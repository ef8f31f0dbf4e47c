"""The dense way, as obvious code: what every figure is compared with.

Patches are unfolded, covariances are one float32 matrix product, the decomposition is a float32
SVD, the projector is a ``d × d`` matrix inside Adam, and the loss has one EWC term per past task.
That is how the authors' published code works (own words, own code).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nscl.core.projection.low_rank_projector import Projection

STRENGTH = 100.0

Penalties = Sequence[Sequence[tuple[Tensor, Tensor, Tensor]]]  # per task: parameter, Fisher, anchor


def unfolded(images: Tensor, layer: nn.Conv2d) -> Tensor:
    """All patches of a batch, one per column: the order of which matmul is faster."""
    padding = layer.padding
    if isinstance(padding, str):
        raise TypeError("the dense way is written for convolutions with padding in numbers")
    patches = F.unfold(images, layer.kernel_size, layer.dilation, padding, layer.stride)
    return patches.transpose(0, 1).reshape(patches.shape[1], -1)


def add_covariance(total: Tensor, columns: Tensor) -> None:
    """Add the outer products of all columns."""
    total += columns @ columns.T


def decompose(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvectors and eigenvalues by a singular value decomposition in float32."""
    vectors, values, _ = torch.linalg.svd(covariance.float())
    return vectors, values


def projector(thin: Projection) -> Tensor:
    """The same projection written out as a ``d × d`` matrix."""
    product = thin.basis[0] @ thin.basis[0].T
    return torch.eye(len(product)) - product if thin.removes else product


def ewc(penalties: Penalties) -> Tensor:
    """One quadratic term per past task and parameter, to be added to the loss."""
    terms = [
        (fisher * (parameter - anchor).square()).sum()
        for task in penalties
        for parameter, fisher, anchor in task
    ]
    return STRENGTH * torch.stack(terms).sum() if terms else torch.zeros(())


class DenseAdam(torch.optim.Optimizer):
    """Adam that multiplies its update by a dense projector before taking it."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], projectors: Mapping[nn.Parameter, Tensor],
        *, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
    ) -> None:  # fmt: skip
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps})
        self.projectors = projectors

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take one projected step."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    update = self._update(parameter, group["betas"], group["eps"])
                    parameter.add_(self._projected(parameter, update), alpha=-group["lr"])

    def _update(self, parameter: nn.Parameter, betas: tuple[float, float], eps: float) -> Tensor:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["mean"], state["square"] = (torch.zeros_like(parameter) for _ in range(2))
        state["step"] += 1
        gradient = parameter.grad
        state["mean"].lerp_(gradient, 1 - betas[0])
        state["square"].mul_(betas[1]).addcmul_(gradient, gradient, value=1 - betas[1])
        unbiased = [1 - beta ** state["step"] for beta in betas]
        scale = (state["square"].sqrt() / math.sqrt(unbiased[1])).add_(eps)
        update: Tensor = state["mean"] / scale / unbiased[0]
        return update

    def _projected(self, parameter: nn.Parameter, update: Tensor) -> Tensor:
        if parameter not in self.projectors:
            return update
        return (update.flatten(1) @ self.projectors[parameter]).view_as(update)
