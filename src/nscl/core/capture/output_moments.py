"""Second moments of output gradients over one ``remember`` pass: the factor G of every block."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nscl.core.capture.losses import Likelihood, sampled_loss
from nscl.core.capture.output_gradients import WIDEST, OutputTaps
from nscl.core.covariance.accumulator import CovarianceAccumulator
from nscl.core.covariance.covariance import Covariance
from nscl.core.covariance.memory_errors import explain_out_of_memory
from nscl.core.covariance.observations import InputRows
from nscl.core.covariance.sketch_accumulator import SketchAccumulator, new_sums
from nscl.core.distributed.collectives import numbers, rank_and_world, sum_over_ranks
from nscl.core.distributed.covariance_sums import covariance_over_ranks
from nscl.core.model.block import Block, outputs_per_group
from nscl.core.padding.padding import Padding
from nscl.core.report import listed
from nscl.errors import FeatureError


class OutputMoments:
    """Draws labels, and sums the gradients that a backward pass brings to the layers' outputs.

    G is summed over the positions of a sample and averaged over samples. The draw of a batch
    depends on the pass and on the batch's number over all ranks, and on nothing else: the user's
    random numbers stay as they are, and a pass can be repeated.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        *,
        likelihood: Likelihood | None,
        temperature: float,
        seed: int,
        rank: int | None = None,
    ) -> None:
        self._likelihood, self._temperature, self._seed = likelihood, temperature, seed
        self._shapes = {name: p.shape for name, p in parameters.items()}
        self._devices = {name: p.device for name, p in parameters.items()}
        self._rank = rank
        widest = WIDEST if rank is None else None
        self.taps = OutputTaps(self._shapes, self._add_rows, widest=widest)
        self._sums: dict[str, CovarianceAccumulator | SketchAccumulator] = {}
        self._batches = 0
        self.samples = 0

    def loss(
        self,
        output: Any,
        given: Callable[[], Any] | None,
        samples: int,
        *,
        norms: bool,
        padding: Padding | None = None,
    ) -> Tensor:
        """What to differentiate for one batch, a sum over its samples.

        ``given`` is the caller's or the model's loss, a mean over samples, if there is one;
        ``norms`` says whether parameters of norm layers wait for a gradient too.
        """
        if given is None:
            loss = self._drawn(output, padding)
        else:
            loss = _checked(given(), self._batches) * samples
        if not ((norms or self.taps.edges) and loss.requires_grad):
            raise FeatureError(
                "no gradient of the model's output reaches any layer (forward= under "
                "torch.no_grad, or a detached output), and factors='kronecker' needs it: let "
                "gradients through, or use factors='input'"
            )
        return loss

    def count(self, samples: int) -> None:
        """One more batch has been differentiated."""
        self.taps.check()
        self._batches += 1
        self.samples += samples

    def _drawn(self, output: Any, padding: Padding | None) -> Tensor:
        rank, world = rank_and_world()
        seed = (self._seed << 32) + self._batches * world + rank
        generator = torch.Generator("cpu").manual_seed(seed)
        loss = sampled_loss(
            output, self._likelihood, generator, temperature=self._temperature, padding=padding
        )
        return _checked(loss, self._batches)

    def _add_rows(self, block: Block, rows: Tensor) -> None:
        with explain_out_of_memory(block):
            if block.name not in self._sums:
                self._sums[block.name] = new_sums(
                    groups=block.groups,
                    features=rows.shape[-1],
                    constants=0,
                    device=self._devices[block.weight],
                    rank=self._rank,
                )
            is_finite = self._sums[block.name].add(InputRows(rows.detach()), None)
        if not is_finite:
            raise FeatureError(
                f"the gradient at the output of layer '{block.name}' is not finite in batch "
                f"{self._batches}: the memory is unchanged; give remember another loss=..., or use "
                "factors='input'"
            )

    def over_ranks(self, blocks: Mapping[str, Block]) -> dict[str, Covariance]:
        """The sums of all ranks, block by block in the model's order."""
        samples = int(sum_over_ranks(numbers([self.samples])).item())
        found = {}
        for name, block in blocks.items():
            sums = self._sums.pop(name, None)
            if sum_over_ranks(numbers([float(sums is not None)])).item():
                with explain_out_of_memory(block):
                    found[name] = covariance_over_ranks(
                        sums,
                        groups=block.groups,
                        width=outputs_per_group(block, self._shapes[block.weight]),
                        rank=self._rank,
                        rows=samples,
                    )
        return found


def _checked(loss: Any, batch: int) -> Tensor:
    if not isinstance(loss, Tensor) or loss.ndim != 0:
        what = f"of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
        raise FeatureError(f"the loss given to remember must be a scalar tensor, not {what}")
    if not torch.isfinite(loss):
        raise FeatureError(
            f"the loss of batch {batch} is not finite: correct the data or the weights, or give "
            "remember another loss=..."
        )
    return loss


def describe_unweighted(names: Sequence[str]) -> Iterator[str]:
    """The warning that these layers are held by their inputs alone: no gradient reaches them."""
    if names:
        yield (
            f"all outputs count alike in {listed(names)}: the loss does not depend on them, or "
            f"they have more than {WIDEST} outputs; give remember a loss=... that does, the memory "
            "a rank=... for wide layers, or use factors='input'"
        )
