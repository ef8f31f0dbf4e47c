"""The mathematics of global distillation (Lee et al., ICCV 2019), without its training.

See docs/methods.md, "GD-WILD". ``prev`` are the l classes of old tasks, ``cur`` the classes of the
task being learned, ``seen`` both, r in number.
"""

import math

import torch
from torch import Tensor

from nscl.methods.distillation.losses import widened


def ensemble_target(previous: Tensor, current: Tensor) -> Tensor:
    """Q, the ensemble of P and C: probabilities over prev and over cur to one over seen.

    P's most likely class keeps its probability m; what is left, 1 − m, is spread over the other
    r − 1 classes: (l − 1)/(r − 1) of it in P's proportions, the rest in C's. Rows sum to 1.

    >>> ensemble_target(torch.tensor([[0.7, 0.3]]), torch.tensor([[0.6, 0.4]]))
    tensor([[0.7000, 0.1000, 0.1200, 0.0800]])
    """
    old, new = previous.shape[1], current.shape[1]
    others = old + new - 1
    most, where = previous.max(dim=1, keepdim=True)
    kept = (previous * (old - 1) / others).scatter(1, where, most)
    return torch.cat([kept, current * (1 - most) * new / others], dim=1)


def unsureness(logits: Tensor) -> Tensor:
    """The confidence loss of each sample: ``KL(uniform ‖ softmax)``, 0 where it is uniform.

    >>> unsureness(torch.tensor([[0.9, 0.1]]).log())
    tensor([0.5108])
    """
    return -(widened(logits).log_softmax(1).mean(1) + math.log(logits.shape[1]))


def class_weights(counts: Tensor) -> Tensor:
    """``N / (N_k · classes)``: every class weighs as much as any other, 1 on average over samples.

    >>> class_weights(torch.tensor([20.0, 500.0]))
    tensor([13.0000,  0.5200])
    """
    present = counts > 0
    weights = counts.sum() / (counts.clamp(min=1e-12) * len(counts))
    return torch.where(present, weights, torch.ones_like(weights))


def shares(budget: int, classes: int) -> list[int]:
    """How many images each class may keep: equally many, and the newest have the remainder.

    >>> shares(8, 3)
    [2, 3, 3]
    """
    each, rest = divmod(budget, classes)
    return [each] * (classes - rest) + [each + 1] * rest


def weight_table(counts: Tensor, old: int) -> Tensor:
    """Weights of samples by class, ``[3, seen + 1]``: among all seen, among prev, among cur.

    A class outside the set in question weighs 1, and so do external images, in the last column.
    """
    table = counts.new_ones((3, len(counts) + 1))
    table[0, :-1] = class_weights(counts)
    table[1, :old] = class_weights(counts[:old])
    table[2, old:-1] = class_weights(counts[old:])
    return table


def choose_external(
    available: int, count: int, *, scores: Tensor | None = None, random_share: float = 0.7
) -> Tensor:
    """Rows of a pool to train with: some that P takes for old classes, the rest at random.

    ``scores`` are ``[available, prev]``: for each old class equally many of its highest-scored
    images are taken, ``1 − random_share`` of ``count`` in all, fewer where classes share an image.
    Without scores all are random. No row comes twice. Draws are from torch's global generator.
    """
    wanted = min(count, available)
    like_old = torch.empty(0, dtype=torch.int64)
    if scores is not None:
        number = wanted - round(wanted * random_share)
        each = -(-number // scores.shape[1])
        like_old = scores.topk(min(each, available), dim=0).indices.flatten().unique().cpu()
        like_old = like_old[torch.randperm(len(like_old))][:number]
    order = torch.randperm(available)
    rest = order[~torch.isin(order, like_old)]
    return torch.cat([like_old, rest[: wanted - len(like_old)]])
