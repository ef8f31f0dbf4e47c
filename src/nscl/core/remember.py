"""What one ``remember`` does: a pass over the data of a task, and the state that follows."""

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nscl.core.capture.batch import call
from nscl.core.capture.data_pass import Forward, Loss, Pass
from nscl.core.capture.losses import Likelihood, check_likelihood
from nscl.core.capture.output_moments import OutputMoments, describe_unweighted
from nscl.core.capture.pass_result import PassResult, run_on_all_ranks
from nscl.core.model.inventory import Inventory
from nscl.core.model.name_patterns import clean
from nscl.core.norms.fisher import describe_unreached
from nscl.core.options import MemoryOptions
from nscl.core.padding.masks import Mask, check_mask
from nscl.core.state import State, extend
from nscl.errors import NsclWarning


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """The data of a task, and how the model is run on it."""

    batches: Iterable[Any]
    forward: Forward | None
    loss: Loss | None
    likelihood: Likelihood | None
    temperature: float
    progress: bool
    batch_mean: bool
    mask: Mask | None

    def __post_init__(self) -> None:
        check_likelihood(self.likelihood, self.temperature)
        check_mask(self.mask)


def remember_task(
    model: nn.Module, found: Inventory, state: State, options: MemoryOptions, data: TaskData
) -> State:
    """The state after one more task; spectra and projections are those from before."""
    with torch.inference_mode(False):  # norm anchors need gradients
        gathered = run_on_all_ranks(
            Pass(
                model,
                found,
                anchored(found, options),
                batch_mean=data.batch_mean,
                norms_held=options.norms != "train",
                exact=options.rule.exact,
                rank=options.rank,
                outputs=_outputs(found, state, options, data),
                mask=data.mask,
                likelihood=data.likelihood,
            ),
            data.batches,
            data.forward or call,
            data.loss,
            progress=data.progress,
        )
        for message in (
            *describe_unreached(gathered.unreached),
            *_unweighed(found, gathered, options),
        ):
            warnings.warn(message, NsclWarning, stacklevel=3)
        rest = {**found.parameters, **{clean(n): b for n, b in model.named_buffers()}}
        held = held_still(found, state, options, gathered)
        return extend(state, found, gathered, held=held, rest=rest)


def anchored(found: Inventory, options: MemoryOptions) -> dict[str, Tensor]:
    """Parameters that are anchored number by number.

    Frozen ones too: they may be unfrozen later, and the data will be gone by then.
    """
    return dict(found.elementwise()) if options.norms == "ewc" else {}


def held_still(
    found: Inventory, state: State, options: MemoryOptions, gathered: PassResult
) -> frozenset[str]:
    """Parameters that may not move at all from now on."""
    held = set(state.held)
    if options.unsupported == "freeze":
        held |= gathered.used & found.unsupported.keys()
    if options.norms == "freeze":
        held |= found.norm_parameters(gathered.norms_seen).keys()
        held |= found.plain.keys() & gathered.used
    return frozenset(held)


def _outputs(
    found: Inventory, state: State, options: MemoryOptions, data: TaskData
) -> OutputMoments | None:
    """What weighs the layers' outputs during a pass, if that is asked for."""
    if options.factors == "input":
        return None
    weights = {b.weight: found.parameters[b.weight] for b in found.blocks.values()}
    return OutputMoments(
        weights,
        likelihood=data.likelihood,
        temperature=data.temperature,
        seed=state.tasks,
        rank=options.rank,
    )


def _unweighed(found: Inventory, gathered: PassResult, options: MemoryOptions) -> Iterator[str]:
    if options.factors == "kronecker":
        missing = [
            name
            for name in gathered.covariances
            if name not in gathered.gradients
            and found.parameters[found.blocks[name].weight].requires_grad
        ]
        yield from describe_unweighted(missing)
