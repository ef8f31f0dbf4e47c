"""Everything a memory knows, as one immutable value: replaced whole, so never half updated."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from nscl.core.anchors import Anchor
from nscl.core.blocks import Block
from nscl.core.covariance import Covariance
from nscl.core.inventory import Inventory
from nscl.core.kronecker import Kronecker, make_kronecker, make_token_kronecker
from nscl.core.layers import running_statistics
from nscl.core.projection import Mask, Projection, thin_projection
from nscl.core.remembering import Gathered
from nscl.core.room import room_for
from nscl.core.rules import Proximal, Rule
from nscl.core.shards import local, whole
from nscl.core.spectrum import Spectrum, decompose, eigenpairs
from nscl.core.statistics import snapshot
from nscl.errors import ModelMismatchError

Held = Projection | Mask | Kronecker  # how a block's displacement is held


@dataclass(frozen=True)
class State:
    """What has been remembered, keyed by qualified names."""

    blocks: Mapping[str, Block] = field(default_factory=dict)
    covariances: Mapping[str, Covariance] = field(default_factory=dict)
    spectra: Mapping[str, Spectrum] = field(default_factory=dict)
    projections: Mapping[str, Held] = field(default_factory=dict)
    gradients: Mapping[str, Covariance] = field(default_factory=dict)  # at the outputs of blocks
    reference: Mapping[str, Tensor] = field(default_factory=dict)  # weights at the last remember
    anchors: Mapping[str, Anchor] = field(default_factory=dict)
    held: frozenset[str] = frozenset()  # parameters that may not move at all
    statistics: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    rest: Mapping[str, Tensor] = field(default_factory=dict)  # all else that recall needs
    tasks: int = 0

    def analysed(self, previous: "State", rule: Rule, *, frobenius: bool) -> "State":
        """The same state with spectra and projections; those that did not change are kept."""
        spectra: dict[str, Spectrum] = {}
        projections: dict[str, Held] = {}
        for name, covariance in self.covariances.items():
            gradient = self.gradients.get(name)
            is_known = previous.covariances.get(name) is covariance
            if is_known and previous.gradients.get(name) is gradient:
                spectra[name] = previous.spectra[name]
                projections[name] = previous.projections[name]
            else:
                block = self.blocks[name]
                dtype = self.reference[block.weight].dtype
                with room_for(block):
                    spectra[name], projections[name] = (
                        factorise(block, covariance, gradient, rule, dtype=dtype)
                        if isinstance(rule, Proximal)
                        else analyse(block, covariance, rule, frobenius=frobenius, dtype=dtype)
                    )
        return replace(self, spectra=spectra, projections=projections)

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes by what they are for; none of them grows with the number of tasks."""
        return {
            "covariances": sum(c.nbytes for c in self.covariances.values()),
            "projections": sum(p.nbytes for p in self.projections.values()),
            "reference": sum(local(t).nbytes for t in self.reference.values()),
            "anchors": sum(a.fisher.nbytes + a.pull.nbytes for a in self.anchors.values()),
            "gradients": sum(g.nbytes for g in self.gradients.values()),
            "rest": sum(local(t).nbytes for t in self.rest.values()),
        }


def analyse(
    block: Block, covariance: Covariance, rule: Rule, *, frobenius: bool, dtype: torch.dtype
) -> tuple[Spectrum, Held]:
    """Decompose a block's covariance and build its projection in the parameter's precision."""
    if block.layout == "tokens":
        return _analyse_tokens(covariance, dtype)
    dense = covariance.dense()
    noise = covariance.rounding(dense, block.features)
    spectrum, vectors = decompose(dense, rule, noise=noise, tasks=covariance.tasks)
    projection = thin_projection(vectors, spectrum.weights, frobenius=frobenius)
    return spectrum, projection.to(device=torch.device("cpu"), dtype=_precise(dtype))


def _precise(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def factorise(
    block: Block,
    covariance: Covariance,
    gradient: Covariance | None,
    rule: Rule,
    *,
    dtype: torch.dtype,
    features: Sequence[int] | None = None,
) -> tuple[Spectrum, Kronecker]:
    """Decompose both factors of a block; ``features`` are those that can move, if not all."""
    outputs = None if gradient is None else eigenpairs(gradient.dense())
    if block.layout == "tokens":
        counts = covariance.sums / covariance.rows
        weights = rule(counts[None], tasks=covariance.tasks, floor=0.0)
        found = make_token_kronecker(counts, outputs, tasks=covariance.tasks)
        spectrum = Spectrum(counts[None], weights, counts.new_zeros(1, 1))
    else:
        dense = covariance.dense()
        noise = covariance.rounding(dense, block.features)
        if features is not None:
            index = torch.tensor(features, device="cpu")
            dense, noise = dense[:, index][:, :, index], noise[:, index]
        spectrum, vectors = decompose(dense, rule, noise=noise, tasks=covariance.tasks)
        inputs = (spectrum.eigenvalues, spectrum.floor, vectors)
        found = make_kronecker(inputs, outputs, tasks=covariance.tasks)
    return spectrum, found.to(device=torch.device("cpu"), dtype=_precise(dtype))


def _analyse_tokens(covariance: Covariance, dtype: torch.dtype) -> tuple[Spectrum, Mask]:
    """Tokens seen are held, tokens never seen are free, whatever the rule: both are certain."""
    counts = covariance.sums / covariance.rows
    free = (counts == 0).to(torch.float64)
    spectrum = Spectrum(counts[None], free[None], counts.new_zeros(1, 1))
    return spectrum, Mask(free.to(dtype))


def extend(
    state: State,
    found: Inventory,
    gathered: Gathered,
    *,
    held: frozenset[str],
    rest: Mapping[str, Tensor],
) -> State:
    """The state after one more task; weights and statistics are remembered as they are now.

    ``rest`` is everything the model computes with, of which what is not held is kept for recall.
    """
    covariances = dict(state.covariances)
    for name, new in gathered.covariances.items():
        covariances[name] = covariances[name].plus(new) if name in covariances else new
    anchors = dict(state.anchors)
    for name, anchor in gathered.anchors.items():
        anchors[name] = anchors[name].plus(anchor) if name in anchors else anchor
    gradients = dict(state.gradients)
    for name, new in gathered.gradients.items():
        gradients[name] = gradients[name].plus(new) if name in gradients else new
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
        gradients=gradients,
        rest={name: t.detach().clone() for name, t in rest.items() if name not in kept},
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
    anchors = dict(mine.anchors)
    for name, anchor in other.anchors.items():
        old_anchor = anchors.get(name)
        if old_anchor is not None:
            anchor = old_anchor.mixed(anchor) if same_tasks else old_anchor.plus(anchor)
        anchors[name] = anchor
    reference = {**other.reference, **mine.reference}
    return State(
        blocks={**other.blocks, **mine.blocks},
        covariances=_sum(mine.covariances, other.covariances, same_tasks=same_tasks),
        gradients=_sum(mine.gradients, other.gradients, same_tasks=same_tasks),
        reference=reference,
        anchors=anchors,
        held=mine.held | other.held,
        statistics={**other.statistics, **mine.statistics},
        rest={n: t for n, t in {**other.rest, **mine.rest}.items() if n not in reference},
        tasks=max(mine.tasks, other.tasks) if same_tasks else mine.tasks + other.tasks,
    )


def _sum(
    mine: Mapping[str, Covariance], other: Mapping[str, Covariance], *, same_tasks: bool
) -> dict[str, Covariance]:
    total = dict(mine)
    for name, new in other.items():
        old = total.get(name)
        if old is None:
            # The other's sums may lie in a file that disappears with it: take the tensor itself.
            total[name] = replace(new, stored=new.sums)
        else:
            total[name] = old.plus(new, same_tasks=same_tasks)
    return total


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
