"""Sums of outer products of output gradients over one ``remember`` pass: G of every block."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nscl.core.blocks import Block, outputs_per_group
from nscl.core.covariance import Covariance
from nscl.core.likelihood import Likelihood, sampled_loss
from nscl.core.output_gradients import WIDEST, OutputTaps
from nscl.core.ranks import numbers, rank_and_world, sum_over_ranks
from nscl.core.report import listed
from nscl.core.room import room_for
from nscl.core.running import Rows, RunningSums
from nscl.core.symmetric import packed_shape
from nscl.errors import FeatureError


class Outputs:
    """Draws labels, and adds up what a backward pass brings to the layers' outputs.

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
    ) -> None:
        self._likelihood, self._temperature, self._seed = likelihood, temperature, seed
        self._shapes = {name: p.shape for name, p in parameters.items()}
        self._devices = {name: p.device for name, p in parameters.items()}
        self.taps = OutputTaps(self._shapes, self._add_rows)
        self._sums: dict[str, RunningSums] = {}
        self._batches = 0
        self.samples = 0

    def loss(
        self, output: Any, given: Callable[[], Any] | None, samples: int, *, norms: bool
    ) -> Tensor:
        """What to differentiate for one batch, a sum over its samples.

        ``given`` is the caller's loss, a mean over samples, if there is one; ``norms`` says whether
        parameters of norm layers wait for a gradient too.
        """
        loss = self._drawn(output) if given is None else _checked(given(), self._batches) * samples
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

    def _drawn(self, output: Any) -> Tensor:
        rank, world = rank_and_world()
        seed = (self._seed << 32) + self._batches * world + rank
        generator = torch.Generator("cpu").manual_seed(seed)
        loss = sampled_loss(output, self._likelihood, generator, temperature=self._temperature)
        return _checked(loss, self._batches)

    def _add_rows(self, block: Block, rows: Tensor) -> None:
        with room_for(block):
            if block.name not in self._sums:
                self._sums[block.name] = RunningSums(
                    groups=block.groups,
                    features=rows.shape[-1],
                    constants=0,
                    device=self._devices[block.weight],
                )
            is_finite = self._sums[block.name].add(Rows(rows.detach()), None)
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
                with room_for(block):
                    mine = sums.total() if sums else self._nothing(block)
                    found[name] = Covariance(sum_over_ranks(mine), samples, 1)
        return found

    def _nothing(self, block: Block) -> Tensor:
        out = outputs_per_group(block, self._shapes[block.weight])
        return torch.zeros(packed_shape(block.groups, out), dtype=torch.float64, device="cpu")


def _checked(loss: Any, batch: int) -> Tensor:
    if not isinstance(loss, Tensor) or loss.ndim != 0:
        what = f"of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
        raise FeatureError(f"the loss given to remember must be a scalar tensor, not {what}")
    if not torch.isfinite(loss):
        raise FeatureError(
            f"the loss of batch {batch} is not finite: mend the data or the weights, or give "
            "remember another loss=..."
        )
    return loss


def told_unweighed(names: Sequence[str]) -> Iterator[str]:
    """Say that these layers are held by their inputs alone: no gradient reaches them."""
    if names:
        yield (
            f"all outputs count alike in {listed(names)}: no gradient of the loss reaches them "
            f"(the model's own no_grad, an output that the loss leaves out), or they have more "
            f"than {WIDEST} outputs; give remember a loss=... that depends on them, or "
            "use factors='input'"
        )
