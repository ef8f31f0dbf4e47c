"""Losses that need no labels, and how many samples they are a mean over.

``default_loss`` takes the model's own arg-max labels; its gradients anchor norm layers.
``sampled_loss`` draws labels from the model's own answer.
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
from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from nscl.core.capture.batch import samples_in, tensors_in
from nscl.core.padding.padding import Padding
from nscl.errors import FeatureError

Likelihood = Literal["categorical", "gaussian"]

TEMPERATURE = 4.0


def default_loss(output: Any, padding: Padding | None = None) -> Tensor:
    """The model's own arg-max labels where the output is logits, else the mean squared norm.

    Logits are an output (or its ``logits`` entry) of shape ``[samples, classes]``, or
    ``[..., classes]`` under the name ``logits``; no labels are needed. Of several other tensors
    the norms are added up, or norm layers on the way to all but one would not be held. Padded
    positions count for nothing.
    """
    logits = logits_of(output)
    if logits is not None:
        rows = real_rows_of(logits, padding)
        return F.cross_entropy(rows, rows.detach().argmax(-1))
    tensors = _held(output)
    if not tensors:
        raise FeatureError(
            "the model's output has no floating-point tensor: give remember a loss=..., or "
            "norms='freeze' / 'train'"
        )
    first, *others = (_mean_squared_norm(tensor, padding) for tensor in tensors)
    for other in others:
        first = first + other.to(first.device)
    return first


def real_rows_of(tensor: Tensor, padding: Padding | None) -> Tensor:
    """A tensor of the output as rows ``[rows, features]``, without those of padded positions."""
    rows = None if padding is None else padding.rows(tensor)
    return tensor.flatten(0, -2) if rows is None else rows


def samples_of(output: Any, batch: Any, padding: Padding | None = None) -> int:
    """B: how many samples a loss of this output is a mean over.

    A mask says it. Else the output's rows: a batch that ``forward`` unpacks may begin with
    anything. A batch that is a tensor has only one answer, its own.
    """
    if padding is not None:
        return padding.samples
    if isinstance(batch, Tensor):
        return samples_in(batch)
    logits = logits_of(output)
    found = _held(output) if logits is None else [logits]
    return next((int(t.size(0)) for t in found if t.ndim and t.numel()), samples_in(batch))


def float_tensors(output: Any) -> list[Tensor]:
    """All floating-point tensors of an output."""
    return [tensor for tensor in tensors_in(output) if tensor.is_floating_point()]


def _held(output: Any) -> list[Tensor]:
    """The tensors of an output that its parameters can move, or all where none can."""
    tensors = float_tensors(output)
    return [tensor for tensor in tensors if tensor.requires_grad] or tensors


def _mean_squared_norm(tensor: Tensor, padding: Padding | None) -> Tensor:
    rows = padding.rows(tensor) if padding and tensor.ndim >= 2 else None
    samples = tensor.size(0) if tensor.ndim else 1
    if padding and rows is not None:
        tensor, samples = rows, padding.samples
    precise = tensor.to(torch.promote_types(tensor.dtype, torch.float32))  # sums that float16 lacks
    return precise.square().sum() / max(1, samples)


def logits_of(output: Any) -> Tensor | None:
    """The logits of an output, where its shape or a name identifies them; else None."""
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(named, Tensor) and named.ndim >= 2:
        return named
    if isinstance(output, Tensor) and output.ndim == 2 and output.shape[1] >= 2:
        return output
    return None


def check_likelihood(likelihood: str | None, temperature: float) -> None:
    """Refuse an unknown likelihood, and a temperature that is not positive."""
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
    padding: Padding | None = None,
) -> Tensor:
    """``−log p(y)`` summed over samples, with y drawn from the model's own distribution.

    Logits are divided by the temperature first. Real positions alone draw, in their order, so what
    they draw does not depend on padding.

    >>> loss = sampled_loss(torch.zeros(4, 2), None, torch.Generator().manual_seed(0))
    >>> round(float(loss) / 4, 4)  # ln 2
    0.6931
    """
    if likelihood == "gaussian":
        return _gaussian(output, generator, padding)
    logits = logits_of(output)
    if logits is None and likelihood == "categorical":
        found = [t for t in float_tensors(output) if t.ndim >= 2]
        logits = found[0] if len(found) == 1 else None
    if logits is None:
        raise FeatureError(
            "factors='kronecker' needs to know what the model's output means: neither [samples, "
            "classes] nor 'logits'; give remember a likelihood='categorical' or 'gaussian', or a "
            "loss=..., or use factors='input'"
        )
    return _categorical(real_rows_of(logits, padding) / temperature, generator)


def _categorical(logits: Tensor, generator: torch.Generator) -> Tensor:
    """One label per row: per token for sequences."""
    rows = logits.to(torch.promote_types(logits.dtype, torch.float32))
    # On the processor: a generator's numbers must not depend on the device.
    chances = rows.detach().softmax(-1).float().cpu().nan_to_num_()
    labels = torch.multinomial(chances + 1e-30, 1, generator=generator).squeeze(-1)
    return F.cross_entropy(rows, labels.to(rows.device), reduction="sum")


def _gaussian(output: Any, generator: torch.Generator, padding: Padding | None) -> Tensor:
    """``½‖output − y‖²`` with y the output plus unit noise: its gradient is the noise."""
    tensors = [t for t in float_tensors(output) if t.requires_grad]
    if not tensors:
        raise FeatureError(
            "the model's output has no floating-point tensor with a gradient: give remember a "
            "loss=..., or use factors='input'"
        )
    total: Tensor | None = None
    for given in tensors:
        rows = padding.rows(given) if padding and given.ndim >= 2 else None
        tensor = given if rows is None else rows
        noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64, device="cpu")
        term = 0.5 * (tensor - tensor.detach() - noise.to(tensor)).square().sum()
        total = term if total is None else total + term.to(total.device)
    assert total is not None
    return total
