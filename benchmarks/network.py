"""The network of the measurements, its free directions, and the dense way of doing the same.

Free directions per layer: the authors' log of 10-split CIFAR-100 with per-sample features, after
task 1 (``rehearsal_without_avg``), in the order of the network's convolutions.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nscl.core.anchors import Anchor
from nscl.core.memory import Memory
from nscl.core.projection import thin_projection
from nscl.core.state import State
from nscl.models import build_model
from nscl.models.heads import TaskModel

FREE = (6, 85, 279, 253, 338, 325, 899, 49, 893, 874, 885, 1929, 106, 1878, 1758, 1734, 3443, 214,
        3286, 1680)  # fmt: skip


def resnet() -> TaskModel:
    """The paper's PreAct ResNet-18 with ten heads."""
    torch.manual_seed(0)
    return build_model("resnet18", image_shape=(3, 32, 32), classes_per_task=(10,) * 10, width=64)


def batch() -> tuple[Tensor, Tensor]:
    """One batch of 32 images."""
    torch.manual_seed(1)
    return torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))


def bases(model: nn.Module) -> dict[str, Tensor]:
    """Random orthonormal held directions per layer: as many as the authors' log has."""
    blocks = Memory(model, exclude=["heads"])._inventory().blocks
    found = {}
    for (name, block), free in zip(blocks.items(), FREE, strict=True):
        d = block.features
        thin = min(free, d - free)
        basis = torch.linalg.qr(torch.randn(d, thin))[0]
        found[name] = basis
    return found


def guarded(model: TaskModel, thin: dict[str, Tensor], tasks: int) -> Memory:
    """A memory with those projections and anchors, as after ``tasks`` tasks."""
    memory = Memory(model, exclude=["heads"])
    found = memory._inventory()
    projections = {}
    for (name, basis), free in zip(thin.items(), FREE, strict=True):
        keeps = free <= basis.shape[0] - free
        weights = torch.ones(1, basis.shape[1])
        projection = thin_projection(basis[None], weights)
        projections[name] = type(projection)(basis[None].contiguous(), removes=not keeps)
    anchors = {}
    for name, parameter in found.norm_parameters().items():
        fisher = torch.full(tuple(parameter.shape), float(tasks), dtype=torch.float64)
        anchors[name] = Anchor(fisher, fisher * parameter.detach().double(), 157)
    memory._state = State(
        blocks=found.blocks, projections=projections, anchors=anchors, tasks=tasks
    )
    return memory


class DenseWay:
    """The reference: dense ``d × d`` projectors on the update, one EWC term per past task."""

    def __init__(self, model: TaskModel, thin: dict[str, Tensor], tasks: int) -> None:
        blocks = Memory(model, exclude=["heads"])._inventory().blocks
        named = dict(model.named_parameters())
        self.projectors = []
        for (name, basis), free in zip(thin.items(), FREE, strict=True):
            dense = basis @ basis.T
            if free > basis.shape[0] - free:
                dense = torch.eye(basis.shape[0]) - dense
            self.projectors.append((named[blocks[name].weight], dense))
        norms = [p for _, p in model.norm_parameters()]
        self.terms = [[(p, torch.ones_like(p), p.detach().clone()) for p in norms]
                      for _ in range(tasks)]  # fmt: skip

    def penalty(self) -> Tensor:
        """100 · Σ_tasks Σ F (w − w*)²."""
        total = torch.zeros(())
        for term in self.terms:
            for weight, fisher, anchor in term:
                total = total + 100.0 * (fisher * (weight - anchor) ** 2).sum()
        return total

    @torch.no_grad()
    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Snapshot, step, project the difference densely."""
        before = [p.detach().clone() for p, _ in self.projectors]
        optimizer.step()
        for (parameter, dense), old in zip(self.projectors, before, strict=True):
            delta = (parameter - old).flatten(1) @ dense
            parameter.copy_(old + delta.view_as(old))


def conv_inputs(model: TaskModel, images: Tensor) -> list[tuple[nn.Conv2d, Tensor]]:
    """What every convolution sees of one batch."""
    seen: list[tuple[nn.Conv2d, Tensor]] = []
    handles = [
        m.register_forward_pre_hook(lambda m, args: seen.append((m, args[0].detach())))
        for m in model.modules()
        if isinstance(m, nn.Conv2d)
    ]
    model.eval()
    with torch.no_grad():
        model(images, 0)
    for handle in handles:
        handle.remove()
    return seen


def unfolded_covariance(conv: nn.Conv2d, images: Tensor) -> Tensor:
    """Unfold + matmul in float32: the reference for one layer and batch."""
    size: Sequence[int] = conv.kernel_size
    patches = F.unfold(images, tuple(size), padding=conv.padding, stride=conv.stride)  # type: ignore[arg-type]
    rows = patches.transpose(0, 1).reshape(patches.shape[1], -1)
    return rows @ rows.T
