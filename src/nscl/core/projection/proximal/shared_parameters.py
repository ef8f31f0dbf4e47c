"""Blocks that share a parameter are treated together: tied embeddings, shared biases.

One after the other, each block would shrink what the other has shrunk already, and the second would
undo the first's budget. The step that is asked for is the proximal step of the sum,

    argmin_X ½‖X − D‖² + Σ_i f_i(X),

of which each block knows the step of its own ``f_i`` alone. Dykstra's method finds it from these:
in turns, each block gets back what it removed in the round before, and removes anew (projections
onto convex sets: Boyle and Dykstra, 1986; proximal steps: Bauschke and Combettes, 2008).
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from nscl.core.projection.proximal.updates import Update
from nscl.core.projection.rules import Proximal

ROUNDS = 100  # at most; a few suffice unless the shrinkage is strong


def sharing_groups(updates: Sequence[Update]) -> list[list[Update]]:
    """Updates that change a common parameter, directly or through others, in the first's place."""
    group_of: dict[str, list[Update]] = {}
    for update in updates:
        joined = [update]
        for found in {id(g): g for p in update.parameters if (g := group_of.get(p))}.values():
            joined = [*found, *joined]
        group_of |= {name: joined for member in joined for name in member.parameters}
    return list({id(group): group for group in group_of.values()}.values())


def apply_together(
    updates: Sequence[Update],
    deltas: Mapping[str, Tensor],
    rule: Proximal,
    rates: Mapping[str, float],
) -> None:
    """The proximal step of all updates in place, each at its own parameters' rate."""
    steps = [_rate(update, rates) for update in updates]
    if len(updates) == 1:
        updates[0].apply(deltas, rule, steps[0])
        return
    removed = [{p: torch.zeros_like(deltas[p]) for p in u.parameters} for u in updates]
    precision = torch.finfo(next(iter(deltas.values())).dtype).eps ** 0.75
    least = precision * _norm(deltas.values())
    for _ in range(ROUNDS):
        before = {name: delta.clone() for name, delta in deltas.items()}
        for update, own, rate in zip(updates, removed, steps, strict=True):
            _turn(update, own, deltas, rule, rate)
        if _norm(deltas[name] - old for name, old in before.items()) <= least:
            break
    _keep_allowances(updates, deltas)


def _turn(
    update: Update,
    removed: dict[str, Tensor],
    deltas: Mapping[str, Tensor],
    rule: Proximal,
    rate: float,
) -> None:
    """Give an update back what it removed, and let it remove anew."""
    for name, own in removed.items():
        own.copy_(deltas[name].add_(own))
    update.apply(deltas, rule, rate)
    for name, own in removed.items():
        own.sub_(deltas[name])


def _keep_allowances(updates: Sequence[Update], deltas: Mapping[str, Tensor]) -> None:
    """Rounds end close to the common point, not on it; an allowance is kept exactly."""
    factor = 1.0
    for update in updates:
        cost = update.cost(deltas) if math.isfinite(update.allowance) else 0.0
        if cost > update.allowance:
            factor = min(factor, math.sqrt(update.allowance / cost))
    if factor < 1.0:
        for delta in deltas.values():
            delta.mul_(factor)


def _rate(update: Update, rates: Mapping[str, float]) -> float:
    """The sum of rates of the first parameter that moved; of one that did not, it is 0."""
    return next((rates[name] for name in update.parameters if name in rates), 0.0)


def _norm(tensors: Iterable[Tensor]) -> float:
    return math.sqrt(sum(float(t.square().sum(dtype=torch.float64)) for t in tensors))
