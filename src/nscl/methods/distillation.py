"""Distillation: how far a network's softened answers are from a teacher's. Pure functions.

With ``q = softmax(teacher / T)`` and ``p = softmax(student / T)`` over the last dimension, cross
entropy ``−Σ q log p`` and ``KL(q ‖ p)`` differ by the entropy of ``q``, so their gradients, ``(p −
q) / T`` per sample, are the same. Hinton's factor T², which undoes one of the two divisions by T in
it, is left to the caller: LwF has none, global distillation has it (METHODS §9, §11).

A teacher and a student that nearly agree differ by less than bfloat16 can tell: logits of half
precision are widened first.
"""

import torch.nn.functional as F
from torch import Tensor

from nscl.core.distillation import kl_per_head as kl_per_head
from nscl.core.distillation import softened_kl as softened_kl
from nscl.core.distillation import widened as widened


def softened_cross_entropy(student: Tensor, teacher: Tensor, *, temperature: float) -> Tensor:
    """Cross entropy of each sample, ``[..., classes]`` to ``[...]``.

    >>> softened_cross_entropy(torch.zeros(2), torch.tensor([2.0, 0.0]), temperature=2.0)
    tensor(0.6931)
    """
    target = (widened(teacher) / temperature).softmax(-1)
    return -(target * (widened(student) / temperature).log_softmax(-1)).sum(-1)


def kl_from(target: Tensor, student: Tensor) -> Tensor:
    """KL divergence of each sample's answer from given probabilities, which may contain zeros."""
    return F.kl_div(widened(student).log_softmax(-1), target, reduction="none").sum(-1)
