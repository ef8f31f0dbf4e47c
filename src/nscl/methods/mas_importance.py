"""MAS importance: how much each parameter moves the squared length of the output. METHODS §6.

``Ω = (1/N) Σ_n |∂ ‖f(x_n)‖² / ∂θ|``: the absolute value of every single sample's gradient, as signs
cancel within a batch. The length is the sum, not the mean, over outputs.
"""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor
from torch.func import grad, vmap

from nscl.errors import NsclError

Output = Callable[[dict[str, Tensor], Tensor], Tensor]

_MOST = 64
# Elements of per-sample gradients held at a time: a processor is fastest while its caches hold
# them (16 MiB: 2.3 times faster than 128 MiB on a reduced ResNet-18), an accelerator wants work.
_ELEMENTS = {"cpu": 2**22}
_ELEMENTS_ELSEWHERE = 2**26


@torch.no_grad()  # of whatever else in the network learns: grad differentiates regardless
def mas_importance(
    output: Output,
    parameters: Mapping[str, Tensor],
    batches: Iterable[Tensor],
    *,
    chunk: int | None = None,
) -> dict[str, Tensor]:
    """Mean absolute gradient of ``‖output(parameters, images)‖²`` over the samples of all batches.

    The network must be in eval mode. ``chunk`` samples are differentiated at a time: what suits the
    device unless said otherwise.

    >>> line = lambda theta, x: x * theta["w"]
    >>> mas_importance(line, {"w": torch.tensor([-0.5])}, [torch.tensor([[1.0], [2.0]])])
    {'w': tensor([2.5000])}
    """
    fixed = {name: parameter.detach() for name, parameter in parameters.items()}
    sums = {name: torch.zeros_like(value) for name, value in fixed.items()}
    size = chunk or _chunk(fixed)

    def length(theta: dict[str, Tensor], sample: Tensor) -> Tensor:
        return output(theta, sample.unsqueeze(0)).square().sum()

    gradients = vmap(grad(length), in_dims=(None, 0))
    samples = 0
    for images in batches:
        for part in images.split(size):
            for name, gradient in gradients(fixed, part).items():
                sums[name] += gradient.abs().sum(0)
        samples += len(images)
    if samples == 0:
        raise NsclError("importances need at least one image: the task has none")
    return {name: total / samples for name, total in sums.items()}


def _chunk(parameters: Mapping[str, Tensor]) -> int:
    values = list(parameters.values())
    room = _ELEMENTS.get(values[0].device.type, _ELEMENTS_ELSEWHERE)
    return max(1, min(_MOST, room // sum(value.numel() for value in values)))
