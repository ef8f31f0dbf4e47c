"""Which layers are wide enough for a sketch, and what follows from a rank that is too small."""

from collections.abc import Iterator, Mapping

from torch import Tensor

from nscl.core.covariance.covariance import Covariance
from nscl.core.covariance.low_rank import is_sketched
from nscl.core.covariance.sketched_covariance import SketchedCovariance
from nscl.core.model.block import Block, outputs_per_group
from nscl.core.model.inventory import Inventory
from nscl.core.projection.rules import Rule
from nscl.core.report import listed
from nscl.core.state import State
from nscl.errors import ModelMismatchError


def widths(found: Inventory, *, outputs: bool) -> dict[str, int]:
    """The widest side of each block that has a matrix: its inputs, and its outputs if they count.

    Tokens are counted one by one, so an embedding has no wide input.
    """
    wide = {}
    for name, block in found.blocks.items():
        inputs = 0 if block.layout == "tokens" else block.width
        out = outputs_per_group(block, found.parameters[block.weight].shape) if outputs else 0
        wide[name] = max(inputs, out)
    return wide


def check_rank_is_used(found: Inventory, rank: int | None, *, outputs: bool) -> None:
    """Refuse a rank that would change nothing."""
    wide = widths(found, outputs=outputs)
    if rank is not None and rank_in_use(found, rank, outputs=outputs) is None:
        name = max(wide, key=lambda name: wide[name])
        raise ValueError(
            f"rank={rank} does nothing: no layer is wider, the widest is '{name}' with "
            f"{wide[name]}; leave rank out, or choose one below that"
        )


def rank_in_use(found: Inventory, rank: int | None, *, outputs: bool) -> int | None:
    """The rank, unless no layer is wider: a file may have been saved with layers that are gone."""
    wide = widths(found, outputs=outputs).values()
    return rank if any(is_sketched(width, rank) for width in wide) else None


def check_same_rank(state: State, rank: int | None) -> None:
    """What was remembered elsewhere must be sketched as it would be here: sums must add up."""
    for name, block in state.blocks.items():
        sides = {"inputs": (state.covariances.get(name), block.width)}
        if block.layout == "tokens":
            sides = {}
        if name in state.gradients:
            sides["outputs"] = (state.gradients[name], _outputs(block, state.reference))
        for side, (covariance, width) in sides.items():
            theirs = _rank(covariance)
            if covariance is not None and theirs != (rank if is_sketched(width, rank) else None):
                raise ModelMismatchError(
                    f"the {side} of layer '{name}' were remembered with rank={theirs}, but this "
                    f"memory has rank={rank}, and the two cannot be added: make a memory with "
                    "the other's rank"
                )


def _rank(covariance: Covariance | None) -> int | None:
    return covariance.rank if isinstance(covariance, SketchedCovariance) else None


def _outputs(block: Block, reference: Mapping[str, Tensor]) -> int:
    return outputs_per_group(block, reference[block.weight].shape)


def describe_lost(state: State, rule: Rule) -> Iterator[str]:
    """The remark that a hard rule frees nothing where a sketch was too small for the data."""
    lost = [
        name
        for name, covariance in state.covariances.items()
        if isinstance(covariance, SketchedCovariance) and state.spectra[name].free == 0
    ]
    if lost and not rule.soft:
        rank = _rank(state.covariances[lost[0]])
        yield (
            f"more directions in use than rank={rank}: {listed(lost)}: what a sketch has lost may "
            "lie anywhere, so a hard rule frees nothing there; use a larger rank, or a soft rule "
            "(nscl.Penalty(), nscl.Budget())"
        )
