"""Fisher information of a network under the decisions of a controller.

It is taken of batches, with arg-max labels (docs/methods.md, "InstAParam"). A branch that is
inactive for every image has none. Gradients of single samples would need one pass per image, as
images differ in what they run; so the surrogate ``B · mean²`` of a batch's B gradients stands for
the sum of their squares (docs/methods.md, "EWC"), averaged over batches.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from nscl.methods.regularization.fisher import likelihood_directions
from nscl.methods.regularization.per_sample_grads import Tensors, importances
from nscl.models.heads import TaskModel


class _DecidedNetwork(nn.Module):
    """The network under decisions, as a module, so that its parameters can be exchanged."""

    def __init__(self, model: TaskModel, decide: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.decide = model, decide

    def forward(self, images: Tensor, task: int) -> Tensor:
        """Logits of a task under the decisions about its images."""
        with torch.no_grad():
            policy = self.decide(images)
        logits: Tensor = self.model.head(task)(self.model.backbone(images, policy))
        return logits


def policy_fisher(
    model: TaskModel,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    task: int,
    parameters: Mapping[str, Tensor],
    decide: Callable[[Tensor], Tensor],
) -> Tensors:
    """Diagonal Fisher information of ``parameters`` (named as in ``model``), by name.

    ``decide`` says which branches are active for some images. In a torch.distributed group every
    rank brings its part of each batch.
    """
    decided = _DecidedNetwork(model, decide)

    def output(theta: Tensors, images: Tensor) -> Tensor:
        named = {f"model.{name}": value for name, value in theta.items()}
        logits: Tensor = functional_call(decided, named, (images, task))
        return logits

    def directions(logits: Tensor, labels: Tensor) -> Iterator[Tensor]:
        return likelihood_directions(logits, labels, "argmax")

    return importances(
        model,
        batches,
        output=output,
        parameters=parameters,
        directions=directions,
        magnitude="square",
        unit="batch_scaled",
    )
