"""What happens to one optimizer step's displacement: which parameters, which projections.

A plan is made once per optimizer and memory, then applied after every step: all of a step's cost is
the thin matrix products in ``Projection``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nscl.core.blocks import Block, bias_vectors, weight_matrix, write_weight_matrix
from nscl.core.projection import Mask, Projection, thin_projection
from nscl.core.rules import Rule
from nscl.core.shards import local, local_rows
from nscl.core.spectrum import decompose
from nscl.core.state import State
from nscl.errors import UnsupportedError


@dataclass
class Plan:
    """How the parameters of one optimizer are projected."""

    parameters: dict[str, Tensor] = field(default_factory=dict)
    blocks: list[tuple[Block, Projection | Mask]] = field(default_factory=list)
    frozen: set[str] = field(default_factory=set)

    def snapshot(self) -> dict[str, Tensor]:
        """Copy the parameters before a step."""
        return {name: local(p.detach()).clone() for name, p in self.parameters.items()}

    def project(self, reference: Mapping[str, Tensor]) -> None:
        """Replace each parameter by its reference plus the projected displacement from it."""
        deltas = {
            name: _difference(local(p.detach()), local(reference[name]))
            for name, p in self.parameters.items()
            if name not in self.frozen
        }
        for block, projection in self.blocks:
            project_block(block, projection, deltas, self.parameters)
        for name, parameter in self.parameters.items():
            start = local(reference[name])
            here = local(parameter.detach())
            here.copy_(start if name in self.frozen else deltas[name] + start)


def make_plan(state: State, rule: Rule, moving: Mapping[str, Tensor], *, frobenius: bool) -> Plan:
    """Plan for the parameters ``moving`` with one optimizer."""
    plan = Plan(frozen={name for name in moving if name in state.held})
    plan.parameters = {name: moving[name] for name in sorted(plan.frozen)}
    for name, projection in state.projections.items():
        block = state.blocks[name]
        parts = [p for p in block.parameters if p in moving]
        if not parts:
            continue
        plan.parameters |= {p: moving[p] for p in parts}
        if block.weight not in parts:
            # A constant is the same for every input: there is no direction in which a bias alone
            # could move without moving all old outputs.
            plan.frozen |= set(parts)
            continue
        if len(parts) < len(block.parameters) and block.layout != "tokens":
            block, projection = _without_fixed_biases(state, name, rule, moving, frobenius)
        weight = local(moving[block.weight])
        plan.blocks.append((block, projection.to(device=weight.device, dtype=_precision(weight))))
    # An embedding's mask comes last: it may only hold more of what a tied layer has projected.
    plan.blocks.sort(key=lambda pair: pair[0].layout == "tokens")
    return plan


def _difference(now: Tensor, before: Tensor) -> Tensor:
    precision = _precision(now)
    return (now.to(precision) - before.to(precision)).contiguous()


def _precision(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _without_fixed_biases(
    state: State, name: str, rule: Rule, moving: Mapping[str, Tensor], frobenius: bool
) -> tuple[Block, Projection]:
    """A bias that stays put takes its constant out of the features the weight can lean on."""
    block, covariance = state.blocks[name], state.covariances[name]
    kept = [i for i, bias in enumerate(block.biases) if bias.parameter in moving]
    index = torch.tensor([*range(block.features), *(block.features + i for i in kept)])
    dense = covariance.dense()[:, index][:, :, index]
    noise = covariance.noise / covariance.rows**2
    spectrum, vectors = decompose(dense, rule, noise=noise, tasks=covariance.tasks)
    smaller = Block(**{**block.__dict__, "biases": tuple(block.biases[i] for i in kept)})
    return smaller, thin_projection(vectors, spectrum.weights, frobenius=frobenius)


def project_block(
    block: Block,
    projection: Projection | Mask,
    deltas: dict[str, Tensor],
    parameters: Mapping[str, Tensor],
) -> None:
    """Project one block's part of the displacements in place."""
    rows = local_rows(block.weight, parameters[block.weight])
    if isinstance(projection, Mask):
        _hold_tokens(block, projection, deltas, parameters, rows)
    elif block.layout == "transposed":
        _project_transposed(block, projection, deltas, rows, parameters[block.weight].shape[0])
    else:
        for piece in _pieces(block, projection, rows):
            _project_rows(block, piece, deltas, parameters, rows[0])


def _hold_tokens(
    block: Block,
    mask: Mask,
    deltas: dict[str, Tensor],
    parameters: Mapping[str, Tensor],
    rows: tuple[int, int],
) -> None:
    deltas[block.weight] *= mask.free[rows[0] : rows[1], None]
    for bias in block.biases:
        if bias.parameter in deltas:
            start, stop = local_rows(bias.parameter, parameters[bias.parameter])
            deltas[bias.parameter] *= mask.free[start:stop]


def _project_transposed(
    block: Block,
    projection: Projection,
    deltas: dict[str, Tensor],
    rows: tuple[int, int],
    inputs: int,
) -> None:
    if rows != (0, inputs):
        raise UnsupportedError(
            f"'{block.name}' ({block.kind}) is sharded along its input channels, which its "
            "projection mixes: leave this layer out of fully_shard"
        )
    delta = deltas[block.weight]
    matrix = weight_matrix(block, delta).contiguous()
    projection.apply_(matrix, bias_vectors(block, deltas))
    write_weight_matrix(block, matrix, delta)


@dataclass(frozen=True)
class _Piece:
    """Consecutive rows of a block that live here, whole groups or part of one."""

    start: int
    stop: int
    groups: int
    projection: Projection


def _pieces(block: Block, projection: Projection, rows: tuple[int, int]) -> Iterable[_Piece]:
    start, stop = max(block.start, rows[0]), min(block.stop, rows[1])
    if start >= stop:
        return
    per_group = (block.stop - block.start) // block.groups
    first, last = start - block.start, stop - block.start
    if first % per_group == 0 and last % per_group == 0:
        groups = projection.groups(first // per_group, last // per_group)
        yield _Piece(start, stop, (last - first) // per_group, groups)
        return
    for group in range(first // per_group, -(-last // per_group)):
        a = max(first, group * per_group)
        b = min(last, (group + 1) * per_group)
        one = projection.groups(group, group + 1)
        yield _Piece(block.start + a, block.start + b, 1, one)


def _project_rows(
    block: Block,
    piece: _Piece,
    deltas: dict[str, Tensor],
    parameters: Mapping[str, Tensor],
    offset: int,
) -> None:
    here = deltas[block.weight][piece.start - offset : piece.stop - offset]
    weight = here.view(piece.groups, -1, block.features)
    biases = []
    for bias in block.biases:
        lo, hi = local_rows(bias.parameter, parameters[bias.parameter])
        start = bias.start + piece.start - block.start - lo
        stop = bias.start + piece.stop - block.start - lo
        if start < 0 or stop > hi - lo:
            raise UnsupportedError(
                f"'{bias.parameter}' and '{block.weight}' are sharded differently, so "
                f"'{block.name}' cannot be projected shard by shard: leave this layer out of "
                "fully_shard"
            )
        biases.append(deltas[bias.parameter][start:stop].view(piece.groups, -1))
    piece.projection.apply_(weight, biases)
