"""Memories of the network that are constructed instead of learned.

What a step costs depends on shapes only, so eigenbases are made up: of the published rank for the
paper's hard rule; for a proximal rule all directions of a factor, the most that there can be.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.network import BATCH, BATCHES_PER_TASK, bases
from nscl import Memory, Penalty, Ratio
from nscl.core.capture.pass_result import PassResult
from nscl.core.covariance.covariance import Covariance
from nscl.core.covariance.packed import packed_shape
from nscl.core.model.block import Block, outputs_per_group
from nscl.core.model.inventory import Inventory, take_inventory
from nscl.core.norms.fisher import Anchor
from nscl.core.projection.kronecker import Kronecker
from nscl.core.projection.projector import BlockProjection
from nscl.core.projection.rules import Proximal
from nscl.core.projection.spectrum import Spectrum
from nscl.core.remember import anchored, held_still
from nscl.core.state import State, extend

Moments = Callable[[int], Tensor]  # packed second moments of a number of features


def papers(model: nn.Module, *, tasks: int, offload: Literal["disk"] | None = None) -> Memory:
    """The paper's memory, whatever the defaults are: a hard rule on every step."""
    hard = Memory(
        model, rule=Ratio(10.0), factors="input", every=1, acts_on="step", norms="ewc",
        statistics="update", offload=offload,
    )  # fmt: skip
    return filled(hard, tasks=tasks)


def papers_displaced(model: nn.Module, *, every: int) -> Memory:
    """The paper's rule on the total displacement, once in ``every`` steps."""
    hard = Memory(
        model, rule=Ratio(10.0), factors="input", every=every, acts_on="displacement", norms="ewc",
        statistics="update",
    )  # fmt: skip
    return filled(hard)


def proximal(model: nn.Module, factors: Literal["kronecker", "input"]) -> Memory:
    """A memory with both factors or with the inputs' only, alike in all else."""
    return filled(Memory(model, rule=Penalty(), factors=factors))


def as_it_comes(model: nn.Module) -> Memory:
    """What two lines of code get: no option is given, so that the figures follow the defaults."""
    return filled(Memory(model))


def filled(memory: Memory, *, tasks: int = 1) -> Memory:
    """Give a memory what ``tasks`` calls of ``remember`` would have left, but for the numbers."""
    state = learned(memory, _zeros, tasks=tasks)
    found = take_inventory(memory.model)
    state = replace(
        state,
        spectra={name: _spectrum(block.width) for name, block in state.blocks.items()},
        projections=dict(_held(memory, found)),
    )
    memory._switch(state)
    return memory


def learned(memory: Memory, moments: Moments, *, tasks: int = 1) -> State:
    """What is known before any decomposition, with second moments of one's choice."""
    found = take_inventory(memory.model)
    blocks = dict(_blocks(memory, found))
    weighed = blocks if memory.factors == "kronecker" else {}
    gathered = PassResult(
        covariances={n: _covariance(moments(b.width), tasks) for n, b in blocks.items()},
        anchors={n: _anchor(p.detach(), tasks) for n, p in anchored(found, memory).items()},
        norms_seen=set(found.norms),
        used=set(),
        unreached=[],
        gradients={n: _covariance(moments(_outputs(found, b)), tasks) for n, b in weighed.items()},
    )
    rest = {**found.parameters, **dict(memory.model.named_buffers())}
    held = held_still(found, State(), memory, gathered)
    return replace(extend(State(), found, gathered, held=held, rest=rest), tasks=tasks)


def _blocks(memory: Memory, found: Inventory) -> Iterator[tuple[str, Block]]:
    """All layers; for a hard rule the convolutions, of which the ranks were published."""
    for name, block in found.blocks.items():
        if isinstance(memory.rule, Proximal) or name in bases():
            yield name, block


def _held(memory: Memory, found: Inventory) -> Iterator[tuple[str, BlockProjection]]:
    is_proximal, both = isinstance(memory.rule, Proximal), memory.factors == "kronecker"
    if memory.rule.soft and not is_proximal:
        raise TypeError(f"no memory is put together for {memory.rule}: it has no published ranks")
    for name, block in _blocks(memory, found):
        out = _outputs(found, block) if both else None
        yield name, _kronecker(block.width, out) if is_proximal else bases()[name]


def _outputs(found: Inventory, block: Block) -> int:
    return outputs_per_group(block, found.parameters[block.weight].shape)


def _kronecker(width: int, out: int | None) -> Kronecker:
    inputs, energies = _basis(width), _falling(width)
    if out is None:
        return Kronecker(inputs, energies, None, None)
    return Kronecker(inputs, energies, _basis(out), _falling(out))


def _basis(size: int) -> Tensor:
    """Dense and orthonormal, in no time: the reflection along a random direction."""
    draw = torch.Generator().manual_seed(size)
    normal = F.normalize(torch.randn(size, generator=draw), dim=0)
    return (torch.eye(size) - 2.0 * torch.outer(normal, normal))[None]


def _falling(size: int) -> Tensor:
    """Relative eigenvalues that fall by five powers of ten, as published ones of wide layers do."""
    values = torch.logspace(-5, 0, size)
    return (values / values.mean())[None]


def _zeros(size: int) -> Tensor:
    return torch.zeros(packed_shape(1, size), dtype=torch.float64)


def _covariance(sums: Tensor, tasks: int) -> Covariance:
    return Covariance(sums, rows=BATCH * BATCHES_PER_TASK * tasks, tasks=tasks)


def _spectrum(features: int) -> Spectrum:
    zeros = torch.zeros(1, features, dtype=torch.float64)
    return Spectrum(zeros, zeros, zeros[:, :1])


def _anchor(weight: Tensor, tasks: int) -> Anchor:
    fisher = torch.full_like(weight, 1e-3, dtype=torch.float64)
    anchor = one = Anchor(fisher, fisher * weight, BATCHES_PER_TASK)
    for _ in range(tasks - 1):
        anchor = anchor.plus(one)
    return anchor
