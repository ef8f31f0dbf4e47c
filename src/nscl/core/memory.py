"""``Memory``: what a network must not forget, and the two lines that keep it.

This file puts the parts together: ``remember`` runs the data through the model, ``state`` is what
is known afterwards, ``projection`` turns it into projections, ``protection`` applies them to the
steps of an optimizer, ``report`` shows the result, and ``stored_memory`` saves and loads it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from torch import nn
from torch.optim import Optimizer

from nscl.core import serialization
from nscl.core.capture.data_pass import Forward, Loss
from nscl.core.capture.losses import TEMPERATURE, Likelihood
from nscl.core.checks.forget_layers import drop_layers, excluded_from
from nscl.core.checks.layer_report import write_report
from nscl.core.checks.loaded_state import check_loaded
from nscl.core.checks.other_weights import differing_layers
from nscl.core.checks.sketches import (
    check_rank_is_used,
    check_same_rank,
    describe_lost,
    rank_in_use,
)
from nscl.core.checks.unprotected_updates import UNKNOWN_STEPS
from nscl.core.forgetting.measure import measure_forgetting
from nscl.core.forgetting.probe import measure_probe
from nscl.core.model.inventory import Inventory, reject_empty, take_inventory, unwrap
from nscl.core.options import ActsOn, Factors, Norms, Offload, Scale, StatisticsMode, Unsupported
from nscl.core.padding.masks import Mask
from nscl.core.projection.projector import Projector
from nscl.core.projection.rules import Penalty, Ratio, Rule
from nscl.core.protection.optimizer_checks import check_holds, check_unprotected, inner_optimizer
from nscl.core.protection.protections import Protections
from nscl.core.protection.step_hooks import Protection
from nscl.core.recall import answer_as_remembered
from nscl.core.remember import TaskData, remember_task
from nscl.core.report import Forgetting, Report
from nscl.core.state import State, check_model, check_weights, combine
from nscl.core.stored_memory import StoredMemory


class Memory(StoredMemory):
    """Second-order statistics of each layer's inputs, and the null space they leave free.

    >>> model = nn.Linear(4, 2)
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> import nscl
    >>> memory = nscl.Memory(model, rule=nscl.Tolerance(1e-6))
    >>> protection = memory.protect(optimizer)
    >>> old = torch.randn(32, 2) @ torch.randn(2, 4)          # two of four directions
    >>> memory.remember([old]).layers[0].free
    2
    >>> before = model(old)
    >>> model(torch.randn(8, 4)).square().sum().backward(); optimizer.step()
    >>> torch.allclose(model(old), before, atol=1e-5)
    True
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        rule: Rule = Penalty(),  # noqa: B008  (frozen)
        factors: Factors | None = None,
        every: int | None = None,
        acts_on: ActsOn | None = None,
        scale: Scale = "none",
        norms: Norms = "ewc",
        statistics: StatisticsMode = "freeze",
        unsupported: Unsupported = "error",
        exclude: Sequence[str] = (),
        rank: int | None = None,
        offload: Offload | None = None,
        projector: Projector | None = None,
        keep_covariances: bool = True,
    ) -> None:
        super().__init__(
            model,
            rule=rule,
            factors=factors,
            every=every,
            acts_on=acts_on,
            scale=scale,
            norms=norms,
            statistics=statistics,
            unsupported=unsupported,
            exclude=exclude,
            rank=rank,
            offload=offload,
            projector=projector,
            keep_covariances=keep_covariances,
        )
        self._protections = Protections(
            self._live,
            freezes_statistics=statistics == "freeze",
            pulls_back=self.acts_on == "displacement",
            can_trace=projector is None,
        )
        found = self._live.inventory(without_values=True)
        reject_empty(found)
        check_rank_is_used(found, rank, outputs=self.factors == "kronecker")

    def __repr__(self) -> str:
        how = f"rule={self.rule}" if self.projector is None else f"projector={self.projector}"
        return f"Memory({type(self.model).__name__}, {how}, tasks={self.tasks})"

    @classmethod
    def adam_nscl(cls, model: nn.Module, a: float = 10.0) -> Self:
        """The paper to the letter: ``Ratio(a)`` on every step, inputs only, EWC on norm layers.

        >>> Memory.adam_nscl(nn.Linear(2, 2)).rule
        Ratio(a=10.0, literal=False)
        """
        return cls(
            model,
            rule=Ratio(a),
            factors="input",
            every=1,
            acts_on="step",
            norms="ewc",
            statistics="update",
        )

    @classmethod
    def load(cls, path: str | Path, model: nn.Module, *, exclude: Sequence[str] = ()) -> Self:
        """Read a memory for a model of the same architecture, with the options it was saved with.

        Load the model's weights first: layers in which they are neither those of the last
        ``remember`` nor those at the time of ``save`` are warned about. Name layers that have been
        replaced or removed in ``exclude``: they are left out, and free. Sharded weights are
        gathered for the comparison, so every rank must call this.

        >>> Memory.load("memory.safetensors", model, exclude=["fc"])  # doctest: +SKIP
        """
        metadata, tensors = serialization.load(path)
        state = serialization.from_parts(metadata, tensors)
        options = serialization.read_options(metadata)
        options["exclude"] = excluded_from(unwrap(model), state, options["exclude"], exclude)
        found = take_inventory(unwrap(model), exclude=options["exclude"])
        options["rank"] = rank_in_use(
            found, options.get("rank"), outputs=options.get("factors") == "kronecker"
        )
        memory, state = cls(model, **options), drop_layers(state, exclude)
        check_loaded(state, memory._live.inventory(), memory.rank)
        memory._replace(state)
        memory._live.restart(steps=UNKNOWN_STEPS)
        digests, parameters = serialization.read_digests(metadata), memory._live.parameters()
        differing = differing_layers(state.reference, digests, parameters, state.blocks)
        memory._protections.warn_other_weights(differing)
        return memory

    def protect(self, optimizer: Optimizer) -> Protection:
        """Keep every step of this optimizer in the null space of what is (and will be) remembered.

        The optimizer stays the object it is. The returned ``Protection`` is a context manager;
        its ``remove()`` restores the optimizer exactly.
        """
        inner = inner_optimizer(optimizer)
        check_unprotected(inner, self)
        found = self._live.checked_inventory()
        check_holds(inner, found.parameters)
        self._protections.hold_statistics(found)
        protection = Protection(
            self,
            inner,
            self._live,
            check_weights=self._protections.warn_if_displaced,
            on_remove=self._protections.remove,
        )
        self.flush()
        self._protections.add(protection)
        return protection

    def remember(
        self,
        batches: Iterable[Any],
        *,
        forward: Forward | None = None,
        loss: Loss | None = None,
        likelihood: Likelihood | None = None,
        temperature: float = TEMPERATURE,
        mask: Mask | None = None,
        progress: bool = False,
        batch_mean: bool = False,
    ) -> Report:
        """Add the data of a task to the memory: one pass, in eval mode, no labels needed.

        A batch is a tensor, a tuple whose first item is the input, or a dict of keyword arguments;
        ``forward(model, batch)`` overrides that. ``loss(output, batch)`` replaces the arg-max
        labels (or the squared output norm) by which norm layers are anchored, and what
        ``factors="kronecker"`` weighs outputs by: ``likelihood`` then says what an output means,
        "categorical" (logits; labels are drawn from the model's own softmax, softened by the
        ``temperature``) or "gaussian" (numbers with unit noise). Without ``loss`` and
        ``likelihood`` a batch with labels is weighed by the model's own ``.loss``, if its output
        has one. Padded positions count nowhere: ``mask`` is the key of the mask in a dict batch
        (default ``"attention_mask"``) or a function from the batch to it, ``[batch, positions]``
        with 1 where a position is real. All or nothing: an exception leaves the memory as it was.
        ``batch_mean`` averages every layer's input over the batch first, as the authors' script
        does: weaker protection, for reproduction. In a ``torch.distributed`` group every rank calls
        this with its part of the data and gets the memory of the whole, made with the first rank's
        running statistics; where parameters are sharded (``fully_shard``), a forward pass needs all
        ranks, so each must bring equally many batches.
        """
        data = TaskData(
            batches=batches,
            forward=forward,
            loss=loss,
            likelihood=likelihood,
            temperature=temperature,
            progress=progress,
            batch_mean=batch_mean,
            mask=mask,
        )
        self.flush()
        self.decompose_unfrozen()
        found = self._live.checked_inventory()
        self._protections.warn_if_unprotected(found)
        self._protections.warn_of_shifts(found)
        if self._protections.all:
            self._protections.hold_statistics(found)  # of norm layers added since, too
        self._replace(remember_task(self.model, found, self._state, self, data))
        self._live.restart()
        return self._report(found)

    def recall(self, *args: Any, **kwargs: Any) -> Any:
        """What the model would have answered at the last ``remember``: eval mode, no gradient.

        Costs a forward pass and no second model. With ``nscl.distillation`` it makes old answers on
        new inputs part of the loss. Layers added since are taken as they are now. Where parameters
        are sharded every rank must ask.
        """
        return answer_as_remembered(self.model, self.remembered, args, kwargs)

    def flush(self) -> None:
        """Treat all steps that ``every`` has left waiting, so that the weights may be used.

        Called by everything here that looks at them; call it before ``model.eval()`` or
        ``model.state_dict()``, which no memory can see.
        """
        self._protections.flush()

    def report(self) -> Report:
        """Per layer: protected how, features, free directions, R; and which optimizers are."""
        self.flush()
        self.decompose_unfrozen()
        return self._report(self._live.checked_inventory())

    def forgetting(self, probe: Any = None, *, forward: Forward | None = None) -> Forgetting:
        """How far old outputs have moved since the last ``remember``, measured without old data.

        ``tr(ΔW C ΔWᵀ)`` is exactly the mean squared change of a layer's output over all remembered
        rows, because the covariance C of those rows is kept. What moved and cannot be counted is
        listed beside the total. ``probe=batch`` adds how far the model's own output on that batch
        has moved, at the cost of two forward passes; batches and ``forward`` are as in
        ``remember``. Sharded weights are gathered for this, so every rank must ask.
        """
        if forward is not None and probe is None:
            raise ValueError("forward= says how the model is run on a probe: give probe=batch too")
        self.flush()
        found = self._live.checked_inventory()
        forgotten = measure_forgetting(self.model, self._state, found, self)
        if probe is None:
            return forgotten
        return replace(forgotten, probe=measure_probe(self.model, self.remembered, probe, forward))

    def merge(self, other: "Memory", *, same_tasks: bool = True) -> Report:
        """Take over what another memory of the same weights knows.

        By default both are parts of the same tasks (two halves of the data, two sites): the result
        equals one memory made of all of it, up to the labels that were drawn. ``same_tasks=False``
        counts the other's tasks as further ones, which matters to ``Penalty``, to ``Ridge`` and to
        the strength of norm anchors only.
        """
        if not isinstance(other, Memory):
            raise TypeError(f"merge needs another Memory, not {type(other).__name__}")
        for memory in (self, other):
            memory._refuse_projector("merged")
        self.flush()
        other.flush()
        found = self._live.checked_inventory()
        check_model(other._state, found)
        check_same_rank(other._state, self.rank)
        check_weights(other._state, found, known=self._state.reference.keys())
        self._replace(combine(self._state, other._state, same_tasks=same_tasks))
        return self._report(found)

    def _report(self, found: Inventory) -> Report:
        optimizers = self._protections.optimizers
        remarks = self._protections.remarks(found) if optimizers else ()
        remarks = (*describe_lost(self._state, self.rule), *remarks)
        rule = self.rule if self.projector is None else None
        return write_report(self._state, found, self.options(), optimizers, rule, remarks)

    def _switch(self, complete: State) -> None:
        self._protections.before_switch(complete)
        super()._switch(complete)
