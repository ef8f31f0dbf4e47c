"""Distillation: a loss that keeps a network's answers where another's are.

With ``q = softmax(old / T)`` and ``p = softmax(new / T)`` it is ``KL(q ‖ p)``, the mean over
samples, without Hinton's factor T² (Li and Hoiem, TPAMI 2017).
"""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor


def distillation(
    new: Tensor, old: Tensor, *, temperature: float = 2.0, sizes: Sequence[int] | None = None
) -> Tensor:
    """How far new answers are from old ones: KL of softened logits ``[..., classes]``, a scalar.

    ``sizes`` says how many classes each head has where several lie side by side: every head has a
    softmax of its own, and their losses are added up. No gradient flows into ``old``.

    >>> distillation(torch.zeros(1, 2), torch.tensor([[2.0, 0.0]]))
    tensor(0.1109)
    >>> distillation(torch.zeros(1, 4), torch.tensor([[2.0, 0.0, 2.0, 0.0]]), sizes=(2, 2))
    tensor(0.2219)
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be a positive number, not {temperature!r}")
    if new.shape != old.shape:
        raise ValueError(
            f"new answers have the shape {tuple(new.shape)} and old ones {tuple(old.shape)}: "
            "compare the same heads on the same inputs"
        )
    widths = [new.shape[-1]] if sizes is None else list(sizes)
    if sum(widths) != new.shape[-1]:
        raise ValueError(f"sizes {widths} add up to {sum(widths)}, not to {new.shape[-1]} classes")
    ours, theirs = (z.reshape(-1, z.shape[-1]) for z in (new, old.detach()))
    return kl_per_head(ours, theirs, widths, temperature=temperature)


def widened(logits: Tensor) -> Tensor:
    """In float32 at least; float32 and float64 stay as they are.

    >>> widened(torch.zeros(2, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def softened_kl(student: Tensor, teacher: Tensor, *, temperature: float) -> Tensor:
    """KL divergence of each sample from the teacher's answer, ``[..., classes]`` to ``[...]``.

    >>> softened_kl(torch.zeros(2), torch.tensor([2.0, 0.0]), temperature=2.0)
    tensor(0.1109)
    """
    target = (widened(teacher) / temperature).log_softmax(-1)
    answer = (widened(student) / temperature).log_softmax(-1)
    return F.kl_div(answer, target, reduction="none", log_target=True).sum(-1)


def kl_per_head(
    student: Tensor,
    teacher: Tensor,
    sizes: Sequence[int],
    *,
    temperature: float,
    over_heads: Literal["sum", "mean"] = "sum",
) -> Tensor:
    """KL of heads side by side, ``[samples, Σ sizes]``, a softmax each: mean over samples.

    >>> old = torch.tensor([[2.0, 0.0, 2.0, 0.0]])
    >>> kl_per_head(torch.zeros(1, 4), old, (2, 2), temperature=2.0)
    tensor(0.2219)
    """
    if len(set(sizes)) == 1:
        ours, theirs = (z.view(len(z), len(sizes), sizes[0]) for z in (student, teacher))
        losses = softened_kl(ours, theirs, temperature=temperature)
    else:
        losses = _padded_kl(student, teacher, sizes, temperature)
    total = losses.sum(1).mean()
    return total if over_heads == "sum" else total / len(sizes)


def _padded_kl(
    student: Tensor, teacher: Tensor, sizes: Sequence[int], temperature: float
) -> Tensor:
    """KL ``[samples, heads]`` of heads that differ in width, each filled up to the widest.

    One softmax for all of them: with a loop a step would cost more with every head.
    """
    classes = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]  # [heads, widest]
    columns = classes.flatten().nonzero().squeeze(1).to(student.device)
    padding = ~classes.to(student.device)
    answer, target = (
        _padded(widened(z) / temperature, columns, padding) for z in (student, teacher)
    )
    return F.kl_div(answer, target, reduction="none", log_target=True).sum(-1)


def _padded(logits: Tensor, columns: Tensor, padding: Tensor) -> Tensor:
    """Log probabilities ``[samples, heads, widest]``; 0, which adds nothing, for the padding."""
    filled = logits.new_full((len(logits), padding.numel()), -torch.inf)
    wide = filled.index_copy(1, columns, logits).view(len(logits), *padding.shape)
    return wide.log_softmax(-1).masked_fill(padding, 0.0)
