"""Distillation: how far a network's softened answers are from a teacher's. Pure functions.

With ``q = softmax(teacher / T)`` and ``p = softmax(student / T)`` over the last dimension, cross
entropy ``−Σ q log p`` and ``KL(q ‖ p)`` differ by the entropy of ``q``, so their gradients, ``(p −
q) / T`` per sample, are the same. Hinton's factor T², which undoes one of the two divisions by T in
it, is left to the caller: LwF has none, global distillation has it (METHODS §9, §11).

A teacher and a student that nearly agree differ by less than bfloat16 can tell: logits of half
precision are widened first.
"""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor


def widened(logits: Tensor) -> Tensor:
    """In float32 at least; float32 and float64 stay as they are.

    >>> widened(torch.zeros(2, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def softened_cross_entropy(student: Tensor, teacher: Tensor, *, temperature: float) -> Tensor:
    """Cross entropy of each sample, ``[..., classes]`` to ``[...]``.

    >>> softened_cross_entropy(torch.zeros(2), torch.tensor([2.0, 0.0]), temperature=2.0)
    tensor(0.6931)
    """
    target = (widened(teacher) / temperature).softmax(-1)
    return -(target * (widened(student) / temperature).log_softmax(-1)).sum(-1)


def softened_kl(student: Tensor, teacher: Tensor, *, temperature: float) -> Tensor:
    """KL divergence of each sample from the teacher's answer, ``[..., classes]`` to ``[...]``.

    >>> softened_kl(torch.zeros(2), torch.tensor([2.0, 0.0]), temperature=2.0)
    tensor(0.1109)
    """
    target = (widened(teacher) / temperature).log_softmax(-1)
    answer = (widened(student) / temperature).log_softmax(-1)
    return F.kl_div(answer, target, reduction="none", log_target=True).sum(-1)


def kl_from(target: Tensor, student: Tensor) -> Tensor:
    """KL divergence of each sample's answer from given probabilities, which may contain zeros."""
    return F.kl_div(widened(student).log_softmax(-1), target, reduction="none").sum(-1)


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

    One softmax for all of them: a loop would make steps dearer with every head.
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
    room = logits.new_full((len(logits), padding.numel()), -torch.inf)
    wide = room.index_copy(1, columns, logits).view(len(logits), *padding.shape)
    return wide.log_softmax(-1).masked_fill(padding, 0.0)
