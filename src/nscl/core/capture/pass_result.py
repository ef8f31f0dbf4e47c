"""What one pass over old data has found on all ranks together (Algorithm 2 of the paper)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nscl.core.capture.data_pass import Forward, Loss, Pass
from nscl.core.covariance.covariance import Covariance
from nscl.core.covariance.memory_errors import explain_out_of_memory
from nscl.core.covariance.sharing.shared_sums import Sums
from nscl.core.distributed.collectives import (
    any_rank,
    as_on_first_rank,
    check_same_model,
    numbers,
    sum_over_ranks,
)
from nscl.core.distributed.covariance_sums import (
    covariance_over_ranks,
    same_on_all_ranks,
    token_counts_over_ranks,
)
from nscl.core.model.block import Block
from nscl.core.model.layer_types import running_statistics
from nscl.core.norms.fisher import Anchor, FisherAccumulator
from nscl.errors import FeatureError


@dataclass(frozen=True)
class PassResult:
    """Sums over all ranks of one pass."""

    covariances: dict[str, Covariance]
    anchors: dict[str, Anchor]
    norms_seen: set[str]
    used: set[str]  # plain parameters that were used, and those of unsupported layers that ran
    unreached: list[str]  # parameters of norms that ran, on which no loss depends
    gradients: dict[str, Covariance]  # second moments at the layers' outputs, mean over samples


def run_on_all_ranks(
    current: Pass, batches: Iterable[Any], forward: Forward, loss: Loss | None, *, progress: bool
) -> PassResult:
    """Run a pass on every rank and sum over ranks; all fail if one does."""
    check_same_model(current.found.parameters)
    norms = current.found.norms.values()
    with as_on_first_rank([t for norm in norms for t in running_statistics(norm).values()]):
        error: BaseException | None = None
        try:
            current.run(batches, forward, loss, progress=progress)
        except BaseException as problem:
            if current.is_collective and current.is_under_way:
                raise  # the other ranks wait inside their pass and cannot take part in a collective
            error = problem
        failed = any_rank(error is not None)
        if error is not None:
            raise error
        if failed:
            raise FeatureError(
                "remember failed on another rank, see its message; nothing was changed"
            )
        return _over_ranks(current)


def _over_ranks(current: Pass) -> PassResult:
    """Sum block by block in the model's order: every rank calls the same collectives."""
    if not any_rank(current.batches > 0):
        raise FeatureError("remember got no batches: an empty loader, or a used-up generator?")
    if not any_rank(bool(current.sums)):
        raise FeatureError("no protected layer was called by any batch: nothing to remember")
    covariances: dict[str, Covariance] = {}
    of_label: dict[tuple[int, ...], str] = {}
    labels = same_on_all_ranks(current.sums.labels(current.found.blocks))
    for (name, block), label in zip(current.found.blocks.items(), labels, strict=True):
        sums = current.sums.take(name)
        first = of_label.setdefault(label, name)
        if first in covariances:  # fed the same inputs on every rank: remembered once
            covariances[name] = covariances[first]
            continue
        mine = [sums.rows, sums.rows * sums.noise] if sums else [0.0, 0.0]
        rows, noise = sum_over_ranks(numbers(mine)).tolist()
        if rows:
            with explain_out_of_memory(block, current.rank):
                covariances[name] = _covariance(block, sums, int(rows), noise / rows, current.rank)
    seen = _on_any_rank(current.found.norms, current.norms_seen)
    used = _on_any_rank([*current.found.unsupported, *current.found.plain], current.used)
    # A norm that never ran stays free like any other layer, until its own task is remembered.
    held = current.found.norm_parameters(seen)
    anchors = _anchors_over_ranks(current.fisher) if current.fisher else {}
    unreached = [n for n in held if n not in anchors] if current.fisher else []
    anchors = {n: a for n, a in anchors.items() if n in held or n in current.found.plain}
    gradients: dict[str, Covariance] = {}
    if current.outputs is not None:
        gradients = current.outputs.over_ranks({n: current.found.blocks[n] for n in covariances})
    return PassResult(covariances, anchors, seen, used, unreached, gradients)


def _on_any_rank(names: Iterable[str], seen: set[str]) -> set[str]:
    listed = sorted(names)
    counts = sum_over_ranks(numbers([float(name in seen) for name in listed]))
    return {name for name, count in zip(listed, counts.tolist(), strict=True) if count}


def _covariance(
    block: Block, sums: Sums | None, rows: int, noise: float, rank: int | None
) -> Covariance:
    if block.layout == "tokens":
        return token_counts_over_ranks(sums, tokens=block.features, rows=rows)
    return covariance_over_ranks(
        sums, groups=block.groups, width=block.width, rank=rank, rows=rows, noise=noise
    )


def _anchors_over_ranks(fisher: FisherAccumulator) -> dict[str, Anchor]:
    fisher.batches = int(sum_over_ranks(numbers([fisher.batches])).item())
    fisher.reached = _on_any_rank(fisher.parameters, fisher.reached)
    fisher.sums = {name: sum_over_ranks(value) for name, value in fisher.sums.items()}
    return fisher.anchors()
