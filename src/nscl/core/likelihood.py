"""A loss whose gradients tell what old data need: labels drawn from the model's own answer.

With labels drawn from the model's softmax (or unit noise at an output that is a number) the second
moments of the gradients are the Fisher information, and no labels are needed. The sum over samples
is returned: in eval mode samples do not see each other, so the gradient at one sample's output is
that of its own loss.

The Fisher information of a confident model vanishes: all that is left are a few samples it is not
sure of, and the directions in which the others can be lost count for nothing. A temperature softens
the answers first, as distillation does; what is then measured is the Fisher information of the
softened answers, to second order the distillation loss on old data.
"""

import math
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from nscl.core.losses import float_tensors, logits_of
from nscl.errors import FeatureError

Likelihood = Literal["categorical", "gaussian"]

TEMPERATURE = 4.0


def check_likelihood(likelihood: str | None, temperature: float) -> None:
    """Refuse a word that is none of them, and a temperature that is none."""
    if likelihood is not None and likelihood not in get_args(Likelihood):
        words = ", ".join(map(repr, get_args(Likelihood)))
        raise ValueError(f"likelihood must be one of {words}, not {likelihood!r}")
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature must be a positive number, not {temperature!r}")


def sampled_loss(
    output: Any,
    likelihood: Likelihood | None,
    generator: torch.Generator,
    *,
    temperature: float = 1.0,
) -> Tensor:
    """``−log p(y)`` summed over samples, with y drawn from the model's own distribution.

    Logits are divided by the temperature first.

    >>> loss = sampled_loss(torch.zeros(4, 2), None, torch.Generator().manual_seed(0))
    >>> round(float(loss) / 4, 4)  # ln 2
    0.6931
    """
    if likelihood == "gaussian":
        return _gaussian(output, generator)
    logits = logits_of(output)
    if logits is None and likelihood == "categorical":
        found = [t for t in float_tensors(output) if t.ndim >= 2]
        logits = found[0] if len(found) == 1 else None
    if logits is None:
        raise FeatureError(
            "factors='kronecker' needs to know what the model's output means, and this one is "
            "neither [samples, classes] nor named 'logits': give remember a "
            "likelihood='categorical' or 'gaussian', or a loss=..., or use factors='input'"
        )
    return _categorical(logits / temperature, generator)


def _categorical(logits: Tensor, generator: torch.Generator) -> Tensor:
    """One label per position: per token for sequences."""
    rows = logits.flatten(0, -2).to(torch.promote_types(logits.dtype, torch.float32))
    # On the processor: a generator's numbers must not depend on the device.
    chances = rows.detach().softmax(-1).float().cpu().nan_to_num_()
    labels = torch.multinomial(chances + 1e-30, 1, generator=generator).squeeze(-1)
    return F.cross_entropy(rows, labels.to(rows.device), reduction="sum")


def _gaussian(output: Any, generator: torch.Generator) -> Tensor:
    """``½‖output − y‖²`` with y the output plus unit noise: its gradient is the noise."""
    tensors = [t for t in float_tensors(output) if t.requires_grad]
    if not tensors:
        raise FeatureError(
            "the model's output has no floating-point tensor with a gradient: give remember a "
            "loss=..., or use factors='input'"
        )
    total: Tensor | None = None
    for tensor in tensors:
        noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64, device="cpu")
        term = 0.5 * (tensor - tensor.detach() - noise.to(tensor)).square().sum()
        total = term if total is None else total + term.to(total.device)
    assert total is not None
    return total
