"""One pass over old data: running sums of every layer, Fisher sums of every norm (Algorithm 2)."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from nscl.core.anchors import Anchor, FisherSums
from nscl.core.batches import describe, samples_in, to_device
from nscl.core.blocks import Block
from nscl.core.covariance import Covariance
from nscl.core.inventory import Inventory
from nscl.core.layers import running_statistics
from nscl.core.losses import samples_of
from nscl.core.observer import differentiating, evaluating, observing
from nscl.core.output_moments import Outputs
from nscl.core.ranks import (
    any_rank,
    as_on_first_rank,
    check_same_model,
    in_lockstep,
    numbers,
    sum_over_ranks,
)
from nscl.core.room import room_for
from nscl.core.running import Observation, Rows, RunningSums, TokenCounts, averaged
from nscl.core.shards import is_sharded, reshard
from nscl.core.symmetric import packed_shape
from nscl.core.witness import Witness
from nscl.errors import FeatureError, NsclError

Forward = Callable[[nn.Module, Any], Any]
Loss = Callable[[Any, Any], Tensor]


@dataclass(frozen=True)
class Gathered:
    """What all ranks together have gathered in one pass."""

    covariances: dict[str, Covariance]
    anchors: dict[str, Anchor]
    norms_seen: set[str]
    used: set[str]  # plain parameters that were used, and those of unsupported layers that ran
    unreached: list[str]  # parameters of norms that ran, on which no loss depends
    gradients: dict[str, Covariance]  # second moments at the layers' outputs, mean over samples


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
        outputs: Outputs | None = None,
    ) -> None:
        self.model, self.found, self.batch_mean = model, found, batch_mean
        self.sums: dict[str, RunningSums | TokenCounts] = {}
        self.norms, self.fisher = norms, FisherSums(norms) if norms else None
        self.norms_held, self.exact = norms_held, exact
        self.outputs = outputs
        self.norms_seen: set[str] = set()
        self.used: set[str] = set()
        self.batches = 0
        self.is_collective = any(is_sharded(p) for p in found.parameters.values())
        self.is_under_way = False  # where parameters are sharded: in a pass that needs all ranks
        self._problem: Exception | None = None
        self._together: dict[str, Tensor] = {}  # what stands for sharded norms in the graph

    def run(
        self, batches: Iterable[Any], forward: Forward, loss: Loss | None, *, progress: bool
    ) -> None:
        """Take all batches; raises without side effects on the model."""
        listed = [batches] if isinstance(batches, Tensor | Mapping) else batches
        total = f" of {len(listed)}" if isinstance(listed, Sized) else ""
        taken = self._taken(listed)
        with self._watching() as witness:
            self.norms_seen, self.used = witness.norms_seen, witness.used
            for batch in in_lockstep(taken) if self.is_collective else taken:
                self._one(batch, forward, loss, witness)
                self.batches += 1
                if progress:
                    message = f"\rremembering batch {self.batches}{total}"
                    print(message, end="", file=sys.stderr, flush=True)
        if progress:
            print(file=sys.stderr)

    @contextmanager
    def _watching(self) -> Iterator[Witness]:
        """The model as it is looked at, and as it was afterwards."""
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

    def _taken(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Batches ready for the model; a problem with the last one is raised when asked for more.

        Not in its own forward pass: where that is a collective, other ranks are still in theirs.
        """
        for batch in batches:
            moved = to_device(batch, next(self.model.parameters()).device)
            if samples_in(moved) == 0:
                raise FeatureError(f"batch {self.batches} is empty: {describe(moved)}")
            yield moved
            if self._problem is not None:
                raise self._problem

    def _one(self, batch: Any, forward: Forward, loss: Loss | None, witness: Witness) -> None:
        try:
            with torch.set_grad_enabled(self._has_backward):
                with self._all_ranks():
                    output = self._forward(batch, forward)
                with witness.looking_away():
                    self._look_back(output, batch, loss, witness)
        finally:
            self._together.clear()
            if self.outputs is not None:
                self.outputs.taps.clear()

    def _look_back(self, output: Any, batch: Any, loss: Loss | None, witness: Witness) -> None:
        """After a forward pass: what it has shown, and the gradients."""
        value = self._checked(output, batch, loss, witness)
        if self._has_backward and not self._stops():
            assert value is not None
            self._add_gradients(self._gradients(value), samples_of(output, batch))

    def _checked(
        self, output: Any, batch: Any, loss: Loss | None, witness: Witness
    ) -> Tensor | None:
        """What to differentiate, if no problem is known by now."""
        if self._problem is None:
            try:
                witness.testify()  # now: the whole of the data may take hours
                return self._loss(output, batch, loss) if self._has_backward else None
            except Exception as problem:
                self._problem = problem
        return None

    def _loss(self, output: Any, batch: Any, loss: Loss | None) -> Tensor:
        given = None if loss is None else partial(loss, output, batch)
        if self.outputs is not None:
            samples = samples_of(output, batch)
            return self.outputs.loss(output, given, samples, norms=bool(self.norms))
        assert self.fisher is not None
        return self.fisher.loss(output, given)

    def _stops(self) -> bool:
        """Whether a rank has a problem: sharded, a backward pass is a collective as well."""
        mine = self._problem is not None
        return any_rank(mine) if self.is_collective else mine

    def _gradients(self, loss: Tensor) -> Sequence[Tensor | None]:
        """Of the norms' parameters; those at the layers' outputs are taken on the way."""
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
        """A pass that sharded parameters are gathered for: an exception leaves it under way."""
        self.is_under_way = True
        yield
        self.is_under_way = False

    def _forward(self, batch: Any, forward: Forward) -> Any:
        try:
            return forward(self.model, batch)
        except NsclError:
            raise
        except Exception as problem:
            if self._problem is not None:
                raise self._problem from problem
            raise FeatureError(
                f"the model could not take batch {self.batches} ({describe(batch)}): "
                f"{type(problem).__name__}: {problem}. If a batch needs unpacking, give "
                "forward=lambda model, batch: ..."
            ) from problem

    def _add(self, block: Block, seen: Observation, constant: int | None) -> None:
        if isinstance(seen, Rows) and seen.values.shape[-1] != block.features:
            raise FeatureError(
                f"layer '{block.name}' was given rows of {seen.values.shape[-1]} features, but "
                f"its weight is {block.shape()}: the function given to register_layer does not fit"
            )
        if self.batch_mean:
            seen = averaged(seen)
        with room_for(block):
            if block.name not in self.sums:
                device = next(self.model.parameters()).device
                self.sums[block.name] = _new_sums(block, device, exact=self.exact)
            is_finite = self.sums[block.name].add(seen, constant)
        if not is_finite and self._problem is None:
            self._problem = FeatureError(
                f"layer '{block.name}' received non-finite features (inf, nan or too large to "
                f"square) in batch {self.batches}: the memory is unchanged; mend the data or the "
                "weights"
            )


def _new_sums(block: Block, device: torch.device, *, exact: bool) -> RunningSums | TokenCounts:
    if block.layout == "tokens":
        return TokenCounts(block.features)
    constants = len(block.biases)
    return RunningSums(
        groups=block.groups,
        features=block.features,
        constants=constants,
        device=device,
        exact=exact,
    )


def gather(
    current: Pass, batches: Iterable[Any], forward: Forward, loss: Loss | None, *, progress: bool
) -> Gathered:
    """Run a pass on every rank and sum over ranks; all fail if one does."""
    check_same_model(current.found.parameters)
    norms = current.found.norms.values()
    with as_on_first_rank([t for norm in norms for t in running_statistics(norm).values()]):
        error: BaseException | None = None
        try:
            current.run(batches, forward, loss, progress=progress)
        except BaseException as problem:
            if current.is_collective and current.is_under_way:
                raise  # the other ranks wait inside of their pass and cannot be asked
            error = problem
        failed = any_rank(error is not None)
        if error is not None:
            raise error
        if failed:
            raise FeatureError(
                "remember failed on another rank, see its message; nothing was changed"
            )
        return _over_ranks(current)


def _over_ranks(current: Pass) -> Gathered:
    """Sum block by block in the model's order, so that every rank asks alike."""
    if not any_rank(current.batches > 0):
        raise FeatureError("remember got no batches: an empty loader, or a used-up generator?")
    if not any_rank(bool(current.sums)):
        raise FeatureError("no protected layer was called by any batch: nothing to remember")
    covariances = {}
    for name, block in current.found.blocks.items():
        sums = current.sums.pop(name, None)
        mine = [sums.rows, sums.rows * sums.noise] if sums else [0.0, 0.0]
        rows, noise = sum_over_ranks(numbers(mine)).tolist()
        if rows:
            with room_for(block):
                packed = sums.total() if sums else _nothing(block)
                total = sum_over_ranks(packed)
            covariances[name] = Covariance(total, int(rows), 1, noise / rows)
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
    return Gathered(covariances, anchors, seen, used, unreached, gradients)


def _on_any_rank(names: Iterable[str], seen: set[str]) -> set[str]:
    listed = sorted(names)
    counts = sum_over_ranks(numbers([float(name in seen) for name in listed]))
    return {name for name, count in zip(listed, counts.tolist(), strict=True) if count}


def _nothing(block: Block) -> Tensor:
    shape: tuple[int, ...] = packed_shape(block.groups, block.width)
    if block.layout == "tokens":
        shape = (block.features,)
    return torch.zeros(shape, dtype=torch.float64, device="cpu")


def _anchors_over_ranks(fisher: FisherSums) -> dict[str, Anchor]:
    fisher.batches = int(sum_over_ranks(numbers([fisher.batches])).item())
    fisher.reached = _on_any_rank(fisher.parameters, fisher.reached)
    fisher.sums = {name: sum_over_ranks(value) for name, value in fisher.sums.items()}
    return fisher.anchors()
