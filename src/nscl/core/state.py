"""Everything a memory knows, as one immutable value: replaced whole, so never half updated."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from nscl.core.anchors import Anchor
from nscl.core.blocks import Block
from nscl.core.covariance import Covariance
from nscl.core.inventory import Inventory
from nscl.core.layers import running_statistics
from nscl.core.projection import Mask, Projection, thin_projection
from nscl.core.remembering import Gathered
from nscl.core.room import room_for
from nscl.core.rules import Rule
from nscl.core.shards import local, whole
from nscl.core.spectrum import Spectrum, decompose
from nscl.core.statistics import snapshot
from nscl.errors import ModelMismatchError


@dataclass(frozen=True)
class State:
    """What has been remembered, keyed by qualified names."""

    blocks: Mapping[str, Block] = field(default_factory=dict)
    covariances: Mapping[str, Covariance] = field(default_factory=dict)
    spectra: Mapping[str, Spectrum] = field(default_factory=dict)
    projections: Mapping[str, Projection | Mask] = field(default_factory=dict)
    reference: Mapping[str, Tensor] = field(default_factory=dict)  # weights at the last remember
    anchors: Mapping[str, Anchor] = field(default_factory=dict)
    held: frozenset[str] = frozenset()  # parameters that may not move at all
    statistics: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    tasks: int = 0

    def analysed(self, previous: "State", rule: Rule, *, frobenius: bool) -> "State":
        """The same state with spectra and projections; those that did not change are kept."""
        spectra: dict[str, Spectrum] = {}
        projections: dict[str, Projection | Mask] = {}
        for name, covariance in self.covariances.items():
            if previous.covariances.get(name) is covariance:
                spectra[name] = previous.spectra[name]
                projections[name] = previous.projections[name]
            else:
                block = self.blocks[name]
                dtype = self.reference[block.weight].dtype
                with room_for(block):
                    found = analyse(block, covariance, rule, frobenius=frobenius, dtype=dtype)
                spectra[name], projections[name] = found
        return replace(self, spectra=spectra, projections=projections)

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes by what they are for; none of them grows with the number of tasks."""
        return {
            "covariances": sum(c.nbytes for c in self.covariances.values()),
            "projections": sum(p.nbytes for p in self.projections.values()),
            "reference": sum(local(t).nbytes for t in self.reference.values()),
            "anchors": sum(a.fisher.nbytes + a.pull.nbytes for a in self.anchors.values()),
        }


def analyse(
    block: Block, covariance: Covariance, rule: Rule, *, frobenius: bool, dtype: torch.dtype
) -> tuple[Spectrum, Projection | Mask]:
    """Decompose a block's covariance and build its projection in the parameter's precision."""
    if block.layout == "tokens":
        return _analyse_tokens(covariance, dtype)
    dense = covariance.dense()
    noise = covariance.rounding(dense, block.features)
    spectrum, vectors = decompose(dense, rule, noise=noise, tasks=covariance.tasks)
    projection = thin_projection(vectors, spectrum.weights, frobenius=frobenius)
    precise = torch.float64 if dtype == torch.float64 else torch.float32
    return spectrum, projection.to(device=torch.device("cpu"), dtype=precise)


def _analyse_tokens(covariance: Covariance, dtype: torch.dtype) -> tuple[Spectrum, Mask]:
    """Tokens seen are held, tokens never seen are free, whatever the rule: both are certain."""
    counts = covariance.sums / covariance.rows
    free = (counts == 0).to(torch.float64)
    spectrum = Spectrum(counts[None], free[None], counts.new_zeros(1, 1))
    return spectrum, Mask(free.to(dtype))


def extend(state: State, found: Inventory, gathered: Gathered, *, held: frozenset[str]) -> State:
    """The state after one more task; weights and statistics are remembered as they are now."""
    covariances = dict(state.covariances)
    for name, new in gathered.covariances.items():
        covariances[name] = covariances[name].plus(new) if name in covariances else new
    anchors = dict(state.anchors)
    for name, anchor in gathered.anchors.items():
        anchors[name] = anchors[name].plus(anchor) if name in anchors else anchor
    blocks = {name: found.blocks[name] for name in covariances}
    kept = {p for block in blocks.values() for p in block.parameters} | held | set(anchors)
    seen = gathered.norms_seen | set(state.statistics)
    norms = {n: m for n, m in found.measured_norms.items() if n in seen}
    return State(
        blocks=blocks,
        covariances=covariances,
        reference={p: found.parameters[p].detach().clone() for p in sorted(kept)},
        anchors=anchors,
        held=held,
        statistics=snapshot(norms),
        tasks=state.tasks + 1,
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
    covariances = dict(mine.covariances)
    for name, new in other.covariances.items():
        old = covariances.get(name)
        if old is None:
            # The other's sums may lie in a file that disappears with it: take the tensor itself.
            covariances[name] = replace(new, stored=new.sums)
        else:
            covariances[name] = old.plus(new, same_tasks=same_tasks)
    anchors = dict(mine.anchors)
    for name, anchor in other.anchors.items():
        old_anchor = anchors.get(name)
        if old_anchor is not None:
            anchor = old_anchor.mixed(anchor) if same_tasks else old_anchor.plus(anchor)
        anchors[name] = anchor
    return State(
        blocks={**other.blocks, **mine.blocks},
        covariances=covariances,
        reference={**other.reference, **mine.reference},
        anchors=anchors,
        held=mine.held | other.held,
        statistics={**other.statistics, **mine.statistics},
        tasks=max(mine.tasks, other.tasks) if same_tasks else mine.tasks + other.tasks,
    )


def check_model(state: State, found: Inventory) -> None:
    """A memory fits a model if all it has remembered is still there, with the same shape."""
    for name, block in state.blocks.items():
        now = found.blocks.get(name)
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
