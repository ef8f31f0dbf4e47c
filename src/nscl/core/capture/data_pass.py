"""One pass over old data on this rank: sums of every layer, Fisher sums of every norm layer."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from nscl.core.capture.batch import could_not_take, describe, samples_in, to_device
from nscl.core.capture.forward_hooks import differentiating, evaluating, observing
from nscl.core.capture.functional_use import FunctionalUseMonitor
from nscl.core.capture.losses import Likelihood, samples_of
from nscl.core.capture.output_moments import OutputMoments
from nscl.core.covariance.convolution.unfold import Patches
from nscl.core.covariance.memory_errors import explain_out_of_memory
from nscl.core.covariance.observations import InputRows, Observation, TokenCounter, averaged
from nscl.core.covariance.sharing.shared_sums import SharedSums, Sums
from nscl.core.covariance.sketch_accumulator import new_sums
from nscl.core.distributed.collectives import any_rank, in_lockstep
from nscl.core.distributed.fsdp import is_sharded, reshard
from nscl.core.model.block import Block
from nscl.core.model.inventory import Inventory
from nscl.core.norms.fisher import FisherAccumulator
from nscl.core.padding.labels import own_loss, without_padded_labels
from nscl.core.padding.masks import Mask, padding_of
from nscl.core.padding.padding import Padding
from nscl.core.padding.selection import Selection
from nscl.errors import FeatureError, NsclError

Forward = Callable[[nn.Module, Any], Any]
Loss = Callable[[Any, Any], Tensor]


class Pass:
    """Runs data through a model and adds up what its layers see, on this rank."""

    def __init__(
        self,
        model: nn.Module,
        found: Inventory,
        norms: Mapping[str, Tensor],
        *,
        batch_mean: bool = False,
        norms_held: bool = True,
        exact: bool = False,
        rank: int | None = None,
        outputs: OutputMoments | None = None,
        mask: Mask | None = None,
        likelihood: Likelihood | None = None,
    ) -> None:
        self.model, self.found, self.batch_mean = model, found, batch_mean
        self.sums = SharedSums(self._new_sums)
        self.rank = rank
        self.norms, self.fisher = norms, FisherAccumulator(norms) if norms else None
        self.norms_held, self.exact = norms_held, exact
        self.outputs = outputs
        self.mask, self.likelihood = mask, likelihood
        self.norms_seen: set[str] = set()
        self.used: set[str] = set()
        self.batches = 0
        self.is_collective = any(is_sharded(p) for p in found.parameters.values())
        self.is_under_way = False  # inside a pass that, with sharded parameters, needs all ranks
        self._problem: Exception | None = None
        self._padding: Padding | None = None  # of the batch under way
        self._selection = Selection()
        self._together: dict[str, Tensor] = {}  # gathered norm parameters, as the graph has them

    def run(
        self, batches: Iterable[Any], forward: Forward, loss: Loss | None, *, progress: bool
    ) -> None:
        """Take all batches; raises without side effects on the model."""
        listed = [batches] if isinstance(batches, Tensor | Mapping) else batches
        total = f" of {len(listed)}" if isinstance(listed, Sized) else ""
        taken = self._taken(listed, loss)
        with self._watching() as monitor:
            self.norms_seen, self.used = monitor.norms_seen, monitor.used
            for batch, padding in in_lockstep(taken) if self.is_collective else taken:
                self._padding = padding
                self._one(batch, forward, loss, monitor)
                self.batches += 1
                if progress:
                    message = f"\rremembering batch {self.batches}{total}"
                    print(message, end="", file=sys.stderr, flush=True)
        if progress:
            print(file=sys.stderr)

    @contextmanager
    def _watching(self) -> Iterator[FunctionalUseMonitor]:
        """Observe the model; afterwards it is as it was."""
        watching = observing(
            self.found,
            self._add,
            norms=self.norms_held,
            taps=self.outputs.taps if self.outputs else None,
            together=self._together if self.fisher else None,
        )
        try:
            with evaluating(self.model), differentiating(self._differentiated()), watching as seen:
                yield seen
        finally:
            reshard(self.model, failed=self.is_under_way)

    @property
    def _has_backward(self) -> bool:
        return self.fisher is not None or self.outputs is not None

    def _differentiated(self) -> list[Tensor]:
        """Parameters that take part in the graph: norms for F, weights so that outputs have one."""
        blocks = self.found.blocks.values() if self.outputs else ()
        return [*self.norms.values(), *(self.found.parameters[b.weight] for b in blocks)]

    def _taken(
        self, batches: Iterable[Any], loss: Loss | None
    ) -> Iterator[tuple[Any, Padding | None]]:
        """Batches ready for the model, each with its padding.

        A problem with the last one is raised with the next. Not in its own forward pass: where
        that is a collective, other ranks are still in theirs.
        """
        for batch in batches:
            moved = to_device(batch, next(self.model.parameters()).device)
            if samples_in(moved) == 0:
                raise FeatureError(f"batch {self.batches} is empty: {describe(moved)}")
            padding = padding_of(moved, self.mask, self.model, self.batches)
            if loss is None and self.likelihood is None:  # the model's own loss may be taken
                moved = without_padded_labels(moved, padding, self.model)
            yield moved, padding
            if self._problem is not None:
                raise self._problem

    def _one(
        self, batch: Any, forward: Forward, loss: Loss | None, monitor: FunctionalUseMonitor
    ) -> None:
        try:
            with torch.set_grad_enabled(self._has_backward):
                with self._all_ranks():
                    output = self._forward(batch, forward)
                with monitor.paused():
                    self._after_forward(output, batch, loss, monitor)
        finally:
            self._together.clear()
            if self.outputs is not None:
                self.outputs.taps.clear()

    def _after_forward(
        self, output: Any, batch: Any, loss: Loss | None, monitor: FunctionalUseMonitor
    ) -> None:
        """Raise what the forward pass has shown, then take the gradients."""
        value = self._checked(output, batch, loss, monitor)
        if self._has_backward and not self._stops():
            assert value is not None
            samples = samples_of(output, batch, self._padding)
            self._add_gradients(self._gradients(value), samples)

    def _checked(
        self, output: Any, batch: Any, loss: Loss | None, monitor: FunctionalUseMonitor
    ) -> Tensor | None:
        """The loss to differentiate, unless a problem was found."""
        if self._problem is None:
            try:
                monitor.raise_if_unsupported()  # now: all of the data may take hours
                if self._padding is not None:
                    self._padding.check(self.batches)
                return self._loss(output, batch, loss) if self._has_backward else None
            except Exception as problem:
                self._problem = problem
        return None

    def _loss(self, output: Any, batch: Any, loss: Loss | None) -> Tensor:
        """The caller's, else the model's own if there are labels, else one that needs none."""
        given: Callable[[], Tensor] | None = loss and partial(loss, output, batch)
        given = given or (None if self.likelihood else own_loss(output, batch))
        if self.outputs is None:
            assert self.fisher is not None
            return self.fisher.loss(output, given, self._padding)
        samples, norms = samples_of(output, batch, self._padding), bool(self.norms)
        return self.outputs.loss(output, given, samples, norms=norms, padding=self._padding)

    def _stops(self) -> bool:
        """Whether a rank has a problem: with shards the backward pass is a collective as well."""
        mine = self._problem is not None
        return any_rank(mine) if self.is_collective else mine

    def _gradients(self, loss: Tensor) -> Sequence[Tensor | None]:
        """Gradients of the norms' parameters; the taps receive those at the layers' outputs."""
        wanted: list[Any] = [self._together.get(name, p) for name, p in self.norms.items()]
        wanted += self.outputs.taps.edges if self.outputs else []
        with self._all_ranks():
            found = torch.autograd.grad(loss, wanted, allow_unused=True)
        return found[: len(self.norms)]

    def _add_gradients(self, gradients: Sequence[Tensor | None], samples: int) -> None:
        try:
            if self.outputs is not None:  # of a sum over samples
                self.outputs.count(samples)
                gradients = [None if g is None else g / samples for g in gradients]
            if self.fisher is not None:
                self.fisher.add_gradients(gradients, samples)
        except Exception as problem:
            self._problem = problem

    @contextmanager
    def _all_ranks(self) -> Iterator[None]:
        """A pass that gathers sharded parameters: an exception leaves it under way."""
        self.is_under_way = True
        yield
        self.is_under_way = False

    def _forward(self, batch: Any, forward: Forward) -> Any:
        padding = self._padding
        try:
            with padding.following(self.model) if padding else nullcontext():
                return forward(self.model, batch)
        except NsclError:
            raise
        except Exception as problem:
            if self._problem is not None:
                raise self._problem from problem
            if padding is not None:
                padding.check(self.batches)  # a mask that does not fit: the reason is clear
            raise could_not_take(batch, self.batches, problem) from problem

    def _add(self, block: Block, seen: Observation, constant: int | None) -> Tensor | None:
        """Add what one call feeds to a block; returns which rows count, None for all."""
        if isinstance(seen, InputRows) and seen.values.shape[-1] != block.features:
            raise FeatureError(
                f"layer '{block.name}' was given rows of {seen.values.shape[-1]} features, but "
                f"its weight is {block.shape()}: the function given to register_layer does not fit"
            )
        real = None if self._padding is None else self._padding.real(seen)
        if real is not None and self.batch_mean and isinstance(seen, Patches):
            raise FeatureError(
                f"batch_mean averages whole inputs of layer '{block.name}' and cannot leave padded "
                "positions out of them: remember without batch_mean"
            )
        if real is None or bool(real.any()):
            for part in self._selection.of(seen, real):
                self._add_counted(block, averaged(part) if self.batch_mean else part, constant)
        # The gradients of rows that a layer sorts are sorted too, and 0 where nothing is real.
        return None if isinstance(seen, InputRows) and seen.sources is not None else real

    def _add_counted(self, block: Block, seen: Observation, constant: int | None) -> None:
        with explain_out_of_memory(block, self.rank):
            is_finite = self.sums.add(block, seen, constant)
        if not is_finite and self._problem is None:
            self._problem = FeatureError(
                f"layer '{block.name}' received non-finite features (inf, nan or too large to "
                f"square) in batch {self.batches}: the memory is unchanged; correct the data or "
                "the weights"
            )

    def _new_sums(self, block: Block) -> Sums:
        if block.layout == "tokens":
            return TokenCounter(block.features)
        return new_sums(
            groups=block.groups,
            features=block.features,
            constants=len(block.biases),
            device=next(self.model.parameters()).device,
            rank=self.rank,
            exact=self.exact,
        )
