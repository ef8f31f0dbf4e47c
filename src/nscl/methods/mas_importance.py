"""MAS importance: how much each parameter moves the squared length of the output. METHODS §6.

``Ω = (1/N) Σ_n |∂ ‖f(x_n)‖² / ∂θ|``: the absolute value of every single sample's gradient, as signs
cancel within a batch. The length is the sum, not the mean, over outputs.
"""

from collections.abc import Iterable, Iterator, Mapping

from torch import Tensor, nn

from nscl.methods.sample_gradients import Output, Tensors, Unit, importances


def mas_importance(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    output: Output,
    parameters: Mapping[str, Tensor],
    unit: Unit = "sample",
) -> Tensors:
    """Mean absolute gradient of ``‖output(parameters, images)‖²``; labels are not looked at.

    >>> import torch
    >>> model = nn.Linear(1, 1)
    >>> line = lambda theta, x: x * theta["w"]
    >>> data = [(torch.tensor([[1.0], [2.0]]), torch.zeros(2))]
    >>> mas_importance(model, data, output=line, parameters={"w": torch.tensor([-0.5])})
    {'w': tensor([2.5000])}
    """
    return importances(
        model,
        batches,
        output=output,
        parameters=parameters,
        directions=norm_directions,
        magnitude="absolute",
        unit=unit,
    )


def norm_directions(logits: Tensor, labels: Tensor) -> Iterator[Tensor]:
    """Gradient of the squared norm of the logits, by the logits."""
    yield 2.0 * logits
