"""Everything a memory knows, as one immutable value: replaced whole, so never half updated."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from nscl.core.capture.pass_result import PassResult
from nscl.core.covariance.covariance import Covariance
from nscl.core.covariance.memory_errors import explain_out_of_memory
from nscl.core.covariance.sharing.shared_values import added, each_once, tensor_bytes
from nscl.core.distributed.fsdp import local, whole
from nscl.core.model.block import Block
from nscl.core.model.inventory import Inventory
from nscl.core.model.layer_types import running_statistics
from nscl.core.norms.fisher import Anchor
from nscl.core.norms.running_stats import snapshot
from nscl.core.projection.low_rank_projector import Mask, Projection
from nscl.core.projection.projector import (
    BlockProjection,
    BlockProjector,
    check_width,
    project_by_rule,
)
from nscl.core.projection.rules import Rule
from nscl.core.projection.spectrum import Spectrum, explain_indefinite
from nscl.errors import ModelMismatchError


@dataclass(frozen=True)
class Placed:
    """A low-rank adapter ``scale·B·A`` beside a remembered layer, known by the block of its A."""

    wrapped: str  # block
    up: str  # B's parameter
    scale: float
    rule: Rule | None  # A's own; None: A and B are held as any two layers


@dataclass(frozen=True)
class State:
    """What has been remembered, keyed by qualified names."""

    blocks: Mapping[str, Block] = field(default_factory=dict)
    covariances: Mapping[str, Covariance] = field(default_factory=dict)
    spectra: Mapping[str, Spectrum] = field(default_factory=dict)
    projections: Mapping[str, BlockProjection] = field(default_factory=dict)
    gradients: Mapping[str, Covariance] = field(default_factory=dict)  # at the outputs of blocks
    reference: Mapping[str, Tensor] = field(default_factory=dict)  # weights at the last remember
    anchors: Mapping[str, Anchor] = field(default_factory=dict)
    held: frozenset[str] = frozenset()  # parameters that may not move at all
    statistics: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    rest: Mapping[str, Tensor] = field(default_factory=dict)  # all else that recall needs
    adapters: Mapping[str, Placed] = field(default_factory=dict)  # by the block of their A
    frozen: frozenset[str] = frozenset()  # parameters: neither decomposed nor reported
    tasks: int = 0

    def projected(self, previous: "State", project: BlockProjector) -> "State":
        """The same state with spectra and projections; those that did not change are kept."""
        spectra, projections = dict(self.spectra), dict(self.projections)
        of_rule: dict[Rule, BlockProjector] = {}  # one each: it decomposes common inputs once
        for name, covariance in self.covariances.items():
            if self.is_frozen(self.blocks[name]):
                continue
            own = self.rule_of(name)
            before, gradient = previous.projections.get(name), self.gradients.get(name)
            is_known = previous.covariances.get(name) is covariance
            is_known &= previous.rule_of(name) == own
            if before is not None and is_known and previous.gradients.get(name) is gradient:
                projections[name], spectra[name] = before, previous.spectra[name]
                continue
            block = self.blocks[name]
            dtype = self.reference[block.weight].dtype
            rank = getattr(covariance, "rank", None)
            with explain_out_of_memory(block, rank), explain_indefinite(block):
                by_rule = project if own is None else of_rule.setdefault(own, project_by_rule(own))
                projections[name], spectra[name] = by_rule(
                    block, covariance, before, gradient=gradient, dtype=dtype
                )
        return replace(self, spectra=spectra, projections=projections)

    def rule_of(self, name: str) -> Rule | None:
        """The rule of a block that has one of its own."""
        return self.adapters[name].rule if name in self.adapters else None

    def is_frozen(self, block: Block) -> bool:
        """Whether all parameters of a block are set aside as frozen."""
        return self.frozen.issuperset(block.parameters)

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes by what they are for; none of them grows with the number of tasks."""
        return {
            "covariances": sum(c.nbytes for c in each_once(self.covariances.values())),
            "projections": tensor_bytes(t for p in self.projections.values() for t in p.tensors),
            "reference": sum(local(t).nbytes for t in self.reference.values()),
            "anchors": sum(a.fisher.nbytes + a.pull.nbytes for a in self.anchors.values()),
            "gradients": sum(g.nbytes for g in self.gradients.values()),
            "rest": sum(local(t).nbytes for t in self.rest.values()),
        }


def extend(
    state: State,
    found: Inventory,
    gathered: PassResult,
    *,
    held: frozenset[str],
    rest: Mapping[str, Tensor],
) -> State:
    """The state after one more task; weights and statistics are remembered as they are now.

    ``rest`` is everything the model computes with, of which what is not held is kept for recall.
    """
    covariances = added(state.covariances, gathered.covariances)
    anchors = dict(state.anchors)
    for name, anchor in gathered.anchors.items():
        anchors[name] = anchors[name].plus(anchor) if name in anchors else anchor
    gradients = added(state.gradients, gathered.gradients)
    blocks = {name: found.blocks[name] for name in covariances}
    kept = {p for block in blocks.values() for p in block.parameters} | held | set(anchors)
    reference = {p: found.parameters[p].detach().clone() for p in sorted(kept)}
    seen = gathered.norms_seen | set(state.statistics)
    norms = {n: m for n, m in found.measured_norms.items() if n in seen}
    return State(
        blocks={**state.blocks, **blocks},
        covariances=covariances,
        spectra=state.spectra,
        projections=state.projections,
        reference={**state.reference, **reference},
        anchors=anchors,
        held=held,
        statistics=snapshot(norms),
        gradients=gradients,
        rest={name: t.detach().clone() for name, t in rest.items() if name not in kept},
        adapters=state.adapters,
        frozen=state.frozen,
        tasks=state.tasks + 1,
    )


def projections_to_dict(state: State) -> dict[str, Any]:
    """Projections and spectra as plain data, for memories that cannot compute them again."""
    return {
        "projections": {
            name: {"basis": p.basis, "removes": p.removes, "scale": p.scale, "dense": p.dense}
            for name, p in state.projections.items()
            if isinstance(p, Projection)
        },
        "masks": {n: p.free for n, p in state.projections.items() if isinstance(p, Mask)},
        "spectra": {
            name: {"eigenvalues": s.eigenvalues, "weights": s.weights, "floor": s.floor}
            for name, s in state.spectra.items()
        },
    }


def with_projections(state: State, written: Mapping[str, Any], found: Inventory) -> State:
    """Complete a state with what ``projections_to_dict`` wrote, or with projections as they are."""
    projections: dict[str, BlockProjection] = {n: Mask(f) for n, f in written["masks"].items()}
    for name, kept in written["projections"].items():
        projection = kept if isinstance(kept, Projection) else Projection(**kept)
        check_width(name, found.blocks.get(name), projection)
        projections[name] = projection
    blocks = {name: found.blocks[name] for name in projections}
    spectra = {name: Spectrum(**kept) for name, kept in written["spectra"].items()}
    return replace(
        state, blocks={**state.blocks, **blocks}, projections=projections, spectra=spectra
    )


def combine(mine: State, other: State, *, same_tasks: bool) -> State:
    """The state of two memories of the same weights."""
    # Sorted: gathering shards must go in one order on all ranks.
    for name in sorted(mine.reference.keys() & other.reference.keys()):
        ours, theirs = (whole(s.reference[name]).cpu() for s in (mine, other))
        if not torch.equal(ours, theirs):
            raise ModelMismatchError(
                f"the two memories were made of different weights: '{name}' differs; merge "
                "memories of one and the same model"
            )
    anchors = dict(mine.anchors)
    for name, anchor in other.anchors.items():
        old_anchor = anchors.get(name)
        if old_anchor is not None:
            anchor = old_anchor.mixed(anchor) if same_tasks else old_anchor.plus(anchor)
        anchors[name] = anchor
    reference = {**other.reference, **mine.reference}
    return State(
        blocks={**other.blocks, **mine.blocks},
        covariances=added(mine.covariances, other.covariances, same_tasks=same_tasks),
        gradients=added(mine.gradients, other.gradients, same_tasks=same_tasks),
        reference=reference,
        anchors=anchors,
        held=mine.held | other.held,
        statistics={**other.statistics, **mine.statistics},
        rest={n: t for n, t in {**other.rest, **mine.rest}.items() if n not in reference},
        adapters={**other.adapters, **mine.adapters},
        frozen=mine.frozen | other.frozen,
        tasks=max(mine.tasks, other.tasks) if same_tasks else mine.tasks + other.tasks,
    )


def check_model(state: State, found: Inventory) -> None:
    """A memory fits a model if all it has remembered is still there, with the same shape."""
    for name, block in state.blocks.items():
        now = found.blocks.get(name)
        if now is None and f"{name}.base_layer" in found.blocks:
            raise ModelMismatchError(
                f"layer '{name}' was remembered, and an adapter has been put around it since: call "
                "nscl.integrations.peft.prepare(peft_model, memory) before anything else"
            )
        if now is None:
            raise ModelMismatchError(
                f"layer '{name}' ({block.kind}, {block.shape()}) was remembered, but the model "
                f"has no such protected layer; it has: {_some(found.blocks)}{_way_out(block)}"
            )
        if now.signature() != block.signature():
            raise ModelMismatchError(
                f"layer '{name}' was remembered as {block.kind} {_long(block)}, but the model "
                f"has {now.kind} {_long(now)}{_way_out(block)}"
            )
    for name, remembered in state.reference.items():
        _check_shape(name, remembered, found.parameters.get(name))
    for norm, kept in state.statistics.items():
        now_kept = running_statistics(found.norms[norm]) if norm in found.norms else {}
        for key, remembered in kept.items():
            _check_shape(f"{norm}.{key}", remembered, now_kept.get(key))


def check_weights(state: State, found: Inventory, *, known: Set[str]) -> None:
    """What another memory remembers beyond the ``known`` must be of the model's own weights."""
    for name in sorted(state.reference.keys() - known):
        now = whole(found.parameters[name].detach())
        if not torch.equal(now.cpu(), whole(state.reference[name]).to("cpu", now.dtype)):
            raise ModelMismatchError(
                f"'{name}' of this model is not what the other memory was made of: merge memories "
                "of one and the same weights; to go on from weights that were trained further, "
                "use Memory.load"
            )


def _check_shape(name: str, remembered: Tensor, now: Tensor | None) -> None:
    if now is None or now.shape != remembered.shape:
        has = "no such tensor" if now is None else f"shape {tuple(now.shape)}"
        raise ModelMismatchError(
            f"'{name}' was remembered with shape {tuple(remembered.shape)}, but the model has {has}"
            f"{_drop(name.rpartition('.')[0] or name)}"
        )


def _way_out(block: Block) -> str:
    is_part = "." in block.kind  # of an attention, which is dropped as a whole
    return _drop((is_part and block.name.rpartition(".")[0]) or block.name)


def _drop(name: str) -> str:
    return f"; to go on without it: memory.forget('{name}'), or exclude=['{name}'] when loading"


def _some(blocks: Mapping[str, Block]) -> str:
    names = list(blocks)
    return ", ".join(names[:6]) + (", …" if len(names) > 6 else "")


def _long(block: Block) -> str:
    biases = ", ".join(b.parameter for b in block.biases) or "no bias"
    return f"{block.shape()} of '{block.weight}' with {biases}"
