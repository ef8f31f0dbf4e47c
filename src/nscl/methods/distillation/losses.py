"""Distillation: how far a network's softened answers are from a teacher's. Pure functions.

With ``q = softmax(teacher / T)`` and ``p = softmax(student / T)`` over the last dimension, cross
entropy ``−Σ q log p`` and ``KL(q ‖ p)`` differ by the entropy of ``q``. So their gradients are the
same: ``(p − q) / T`` per sample. Hinton's factor T², which undoes one of the two divisions by T,
is left to the caller: global distillation has it, LwF and AdNS do not (docs/methods.md, "LwF",
"GD-WILD" and "AdNS").

A teacher and a student that nearly agree differ by less than bfloat16 can represent: logits in half
precision are widened first. The KL of whole heads is the core's, for ``Memory.recall``.
"""

import torch.nn.functional as F
from torch import Tensor

from nscl.core.distillation import kl_per_head as kl_per_head
from nscl.core.distillation import softened_kl as softened_kl
from nscl.core.distillation import widened as widened


def softened_cross_entropy(student: Tensor, teacher: Tensor, *, temperature: float) -> Tensor:
    """Mean cross entropy of samples ``[samples, classes]``: a scalar.

    >>> old = torch.tensor([[2.0, 0.0]])
    >>> softened_cross_entropy(torch.zeros(1, 2), old, temperature=2.0)
    tensor(0.6931)
    """
    target = (widened(teacher) / temperature).softmax(-1)
    return F.cross_entropy(widened(student) / temperature, target)


def kl_from(target: Tensor, student: Tensor) -> Tensor:
    """KL divergence of each sample's answer from given probabilities, which may contain zeros."""
    return F.kl_div(widened(student).log_softmax(-1), target, reduction="none").sum(-1)
