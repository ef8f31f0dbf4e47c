"""``Memory``: what a network must not forget, and the two lines that keep it.

This file only puts the parts together: ``remembering`` gathers statistics, ``state`` turns them
into projections, ``protection`` guards optimizers, ``report`` tells about it, ``storage`` keeps it.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nscl.core import statistics as running
from nscl.core import storage
from nscl.core.anchors import told_unreached
from nscl.core.batches import call
from nscl.core.choices import (
    ActsOn,
    Chosen,
    Factors,
    Norms,
    Offload,
    Scale,
    StatisticsMode,
    Unsupported,
    check_choices,
    check_every,
)
from nscl.core.dropping import check_known, excluded_from, without
from nscl.core.examine import measure_forgetting, measure_shifts, write_report
from nscl.core.excluding import as_patterns, clean, is_in
from nscl.core.inventory import (
    Inventory,
    reject_empty,
    reject_unsupported,
    take_inventory,
    unwrap,
)
from nscl.core.likelihood import TEMPERATURE, Likelihood, check_likelihood
from nscl.core.output_moments import Outputs, told_unweighed
from nscl.core.protection import Protection, check_holds, check_unguarded, inner_optimizer
from nscl.core.recall import answer
from nscl.core.remembering import Forward, Gathered, Loss, Pass, gather
from nscl.core.report import Forgetting, Report
from nscl.core.rules import Penalty, Proximal, Ratio, Rule
from nscl.core.shards import reshard
from nscl.core.shelf import Shelf
from nscl.core.state import State, check_model, check_weights, combine, extend
from nscl.core.strays import (
    UNKNOWN,
    strayed,
    told_other_weights,
    told_strayed,
    told_unguarded,
    told_without_weights,
    unguarded,
    unrelated,
    without_weights,
)
from nscl.errors import NsclWarning

EVERY = 20  # steps after which a proximal rule treats the displacement


class Memory(Chosen):
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
        statistics: StatisticsMode = "update",
        unsupported: Unsupported = "error",
        exclude: Sequence[str] = (),
        offload: Offload | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"Memory needs a torch.nn.Module, not {type(model).__name__}")
        is_proximal = isinstance(rule, Proximal)
        acts_on = acts_on or ("displacement" if is_proximal else "step")
        factors = factors or ("kronecker" if is_proximal else "input")
        every = every if every is not None else (EVERY if is_proximal else 1)
        check_every(every, acts_on)
        check_choices(
            rule,
            factors=factors,
            acts_on=acts_on,
            scale=scale,
            norms=norms,
            statistics=statistics,
            unsupported=unsupported,
            offload=offload,
        )
        self.model = unwrap(model)
        self.rule, self.acts_on, self.scale = rule, acts_on, scale
        self.factors, self.every = factors, every
        self.norms, self.statistics, self.unsupported = norms, statistics, unsupported
        self.exclude = as_patterns(exclude)
        self.offload = offload
        self._shelf = Shelf() if offload == "disk" else None
        self._state = State()
        self._protections: list[Protection] = []
        self._revision = 0  # of the state: an id would be given to another one some day
        self._steps = 0  # guarded ones since the last change of the state
        self._narrowed: set[str] = set()  # blocks that were then projected without all biases
        self._holding = running.Holding()
        reject_empty(self._inventory())

    def __repr__(self) -> str:
        return f"Memory({type(self.model).__name__}, rule={self.rule}, tasks={self.tasks})"

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

    @property
    def tasks(self) -> int:
        """How many times ``remember`` has added to this memory."""
        return self._state.tasks

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes of RAM held between steps, by purpose; constant in the number of tasks."""
        return self._state.nbytes

    def protect(self, optimizer: Optimizer) -> Protection:
        """Keep every step of this optimizer in the null space of what is (and will be) remembered.

        The optimizer stays the object it is. The returned ``Protection`` is a context manager;
        its ``remove()`` restores the optimizer exactly.
        """
        inner = inner_optimizer(optimizer)
        check_unguarded(inner, self)
        check_holds(inner, self._parameters())
        self._hold_statistics()
        protection = Protection(self, inner)
        self.flush()
        # Without those whose optimizer is gone: each keeps a plan, with bases, on the device.
        self._protections = [*(p for p in self._protections if p.active), protection]
        return protection

    def remember(
        self,
        batches: Iterable[Any],
        *,
        forward: Forward | None = None,
        loss: Loss | None = None,
        likelihood: Likelihood | None = None,
        temperature: float = TEMPERATURE,
        progress: bool = False,
        batch_mean: bool = False,
    ) -> Report:
        """Add the data of a task to the memory: one pass, in eval mode, no labels needed.

        A batch is a tensor, a tuple whose first item is the input, or a dict of keyword arguments;
        ``forward(model, batch)`` overrides that. ``loss(output, batch)`` replaces the arg-max
        labels (or the squared output norm) by which norm layers are anchored, and what
        ``factors="kronecker"`` weighs outputs by: ``likelihood`` then says what an output means,
        "categorical" (logits; labels are drawn from the model's own softmax, softened by the
        ``temperature``) or "gaussian" (numbers with unit noise). All or nothing: an exception
        leaves the memory as it was. ``batch_mean`` averages every layer's input over the batch
        first, as the authors' script does: weaker protection, for reproduction. In a
        ``torch.distributed`` group every rank calls this with its part of the data and gets the
        memory of the whole, made with the first rank's running statistics; where parameters are
        sharded (``fully_shard``), a forward pass needs all ranks, so each must bring equally many
        batches.
        """
        check_likelihood(likelihood, temperature)
        self.flush()
        found = self._checked_inventory()
        self._warn_if_unprotected(found)
        if self._protections:
            self._hold_statistics()  # of norm layers added since the last time, too
        with torch.inference_mode(False):  # norm anchors need gradients
            gathered = gather(
                Pass(
                    self.model,
                    found,
                    self._anchored(found),
                    batch_mean=batch_mean,
                    norms_held=self.norms != "train",
                    exact=self.rule.exact,
                    outputs=self._outputs(found, likelihood, temperature),
                ),
                batches,
                forward or call,
                loss,
                progress=progress,
            )
            for message in (*told_unreached(gathered.unreached), *self._unweighed(gathered)):
                warnings.warn(message, NsclWarning, stacklevel=2)
            held = self._held(found, gathered)
            rest = {**found.parameters, **{clean(n): b for n, b in self.model.named_buffers()}}
            self._replace(extend(self._state, found, gathered, held=held, rest=rest))
        return self.report()

    def recall(self, *args: Any, **kwargs: Any) -> Any:
        """What the model would have answered at the last ``remember``: eval mode, no gradient.

        Costs a forward pass and no second model. With ``nscl.distillation`` it makes old answers on
        new inputs part of the loss. Layers added since are taken as they are now. Where parameters
        are sharded every rank must ask.
        """
        remembered = {**self._state.reference, **self._state.rest}
        return answer(self.model, remembered, args, kwargs)

    def flush(self) -> None:
        """Treat all steps that ``every`` has left waiting, so that the weights may be used.

        Called by everything here that looks at them; call it before ``model.eval()`` or
        ``model.state_dict()``, which no memory can see.
        """
        for protection in self._protections:
            protection.flush()

    def report(self) -> Report:
        """Per layer: protected how, features, free directions, R; and which optimizers are."""
        self.flush()
        optimizers = tuple(repr(p)[11:-1] for p in self._protections if p.active)
        found = self._checked_inventory()
        remarks = self._remarks(found) if optimizers else ()
        return write_report(self._state, found, self.options(), optimizers, self.rule, remarks)

    def forgetting(self) -> Forgetting:
        """How far old outputs have moved since the last ``remember``, measured without old data.

        ``tr(ΔW C ΔWᵀ)`` is exactly the mean squared change of a layer's output over all remembered
        rows, because the covariance C of those rows is kept. Sharded weights are gathered for
        this, so every rank must ask.
        """
        self.flush()
        found = self._checked_inventory()
        return measure_forgetting(self._state, found, measure_shifts(self._state, found))

    def spectra(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Eigenvalues (ascending) and the weight of each direction, ``[groups, d]`` per layer."""
        return {name: (s.eigenvalues, s.weights) for name, s in self._state.spectra.items()}

    def merge(self, other: "Memory", *, same_tasks: bool = True) -> Report:
        """Take over what another memory of the same weights knows.

        By default both are parts of the same tasks (two halves of the data, two sites): the result
        equals one memory made of all of it, up to the labels that were drawn. ``same_tasks=False``
        counts the other's tasks as further ones, which matters to ``Penalty``, to ``Ridge`` and to
        the strength of norm anchors only.
        """
        if not isinstance(other, Memory):
            raise TypeError(f"merge needs another Memory, not {type(other).__name__}")
        self.flush()
        other.flush()
        found = self._checked_inventory()
        check_model(other._state, found)
        check_weights(other._state, found, known=self._state.reference.keys())
        self._replace(combine(self._state, other._state, same_tasks=same_tasks))
        return self.report()

    def forget(self, names: Sequence[str]) -> None:
        """Drop what was remembered of layers that have been replaced or removed on purpose.

        Names and patterns are those of ``exclude``. A new layer of that name is free until it is
        remembered, and all else stays held.
        """
        check_known(self._state, names)
        self.flush()
        steps, narrowed = self._steps, self._narrowed
        self._replace(without(self._state, names))
        self._steps, self._narrowed = steps, narrowed  # all else is where it was

    def state_dict(self) -> dict[str, Any]:
        """Everything that cannot be recomputed, as tensors and plain data.

        Sharded weights are gathered for this, so every rank must ask; ``save`` likewise. Steps that
        wait are treated first, so take the model's own state after this one.
        """
        self.flush()
        return {
            "metadata": storage.to_metadata(self._state, self.options()),
            "tensors": storage.to_tensors(self._state),
        }

    def load_state_dict(self, state: Mapping[str, Any], *, exclude: Sequence[str] = ()) -> None:
        """Take over a ``state_dict`` but for what is excluded; own options stay. All or nothing.

        ``exclude`` also leaves out layers that are others by now, or gone. It is no option of this
        memory: as after ``forget``, a new layer of that name is free until it is remembered.
        """
        saved = storage.from_parts(state.get("metadata"), state.get("tensors", {}))
        self.flush()
        given = as_patterns(exclude)
        check_known(saved, [pattern for pattern in given if not is_in(self.model, pattern)])
        loaded = without(saved, (*self.exclude, *given))
        check_model(loaded, self._inventory())
        self._replace(loaded)
        self._steps = UNKNOWN

    def save(self, path: str | Path) -> None:
        """Write one safetensors file to ship beside the model."""
        self.flush()
        storage.save(path, self._state, self.options())

    @classmethod
    def load(cls, path: str | Path, model: nn.Module, *, exclude: Sequence[str] = ()) -> Self:
        """Read a memory for a model of the same architecture, with the options it was saved with.

        Layers that are others by now, or gone, are left out and left free with ``exclude``.

        >>> Memory.load("memory.safetensors", model, exclude=["fc"])  # doctest: +SKIP
        """
        metadata, tensors = storage.load(path)
        state, options = storage.from_parts(metadata, tensors), storage.read_options(metadata)
        options["exclude"] = excluded_from(unwrap(model), state, options["exclude"], exclude)
        memory, state = cls(model, **options), without(state, exclude)
        check_model(state, memory._inventory())
        memory._replace(state)
        memory._steps = UNKNOWN
        memory._tell_other_weights(memory._parameters())
        return memory

    def _replace(self, state: State) -> None:
        """Complete a new state with spectra and projections, then switch to it in one go."""
        complete = state.analysed(self._state, self.rule, frobenius=self.scale == "frobenius")
        if self._shelf is not None:
            shelved = {name: self._shelf.put(c) for name, c in complete.covariances.items()}
            complete = replace(complete, covariances=shelved)
        if self._holding and complete.statistics.keys() != self._state.statistics.keys():
            running.retrace()
        self._state = complete
        self._revision += 1
        self._steps, self._narrowed = 0, set()

    def _inventory(self) -> Inventory:
        reshard(self.model)
        found = take_inventory(self.model, exclude=self.exclude)
        if self.unsupported == "error":
            reject_unsupported(found)
        return found

    def _checked_inventory(self) -> Inventory:
        found = self._inventory()
        check_model(self._state, found)
        return found

    def _anchored(self, found: Inventory) -> dict[str, Tensor]:
        # Frozen ones too: they may be unfrozen one day, and the data will be gone by then.
        return dict(found.elementwise()) if self.norms == "ewc" else {}

    def _outputs(
        self, found: Inventory, likelihood: Likelihood | None, temperature: float
    ) -> Outputs | None:
        """What weighs the layers' outputs during a pass, if that is asked for."""
        if self.factors == "input":
            return None
        blocks = [found.parameters[block.weight] for block in found.blocks.values()]
        weights = {b.weight: p for b, p in zip(found.blocks.values(), blocks, strict=True)}
        return Outputs(
            weights, likelihood=likelihood, temperature=temperature, seed=self._state.tasks
        )

    def _unweighed(self, gathered: Gathered) -> Iterator[str]:
        if self.factors == "kronecker":
            missing = [n for n in gathered.covariances if n not in gathered.gradients]
            yield from told_unweighed(missing)

    def _held(self, found: Inventory, gathered: Gathered) -> frozenset[str]:
        """Parameters that may not move at all from now on."""
        held = set(self._state.held)
        if self.unsupported == "freeze":
            held |= gathered.used & found.parameters.keys()
        if self.norms == "freeze":
            held |= found.norm_parameters(gathered.norms_seen).keys()
            held |= found.plain.keys() & gathered.used
        return frozenset(held)

    def _parameters(self) -> dict[str, nn.Parameter]:
        return self._checked_inventory().parameters

    def _owns(self, name: str, parameter: Tensor) -> bool:
        owner, _, attribute = name.rpartition(".")
        try:
            return getattr(self.model.get_submodule(owner), attribute, None) is parameter
        except AttributeError:
            return False

    def _hold_statistics(self) -> None:
        if self.statistics == "freeze":
            self._holding.take(self._inventory().measured_norms, self._has_statistics)

    def _has_statistics(self, norm: str) -> bool:
        return norm in self._state.statistics

    def _forget_protection(self, protection: Protection) -> None:
        if protection in self._protections:
            self._protections.remove(protection)
        if not any(p.active for p in self._protections):
            self._holding.release()

    def _strayed(self, parameters: Mapping[str, Tensor]) -> list[str]:
        """Layers that a step which nobody guarded has moved."""
        return strayed(self._state, parameters, steps=self._steps, ignore=self._narrowed)

    def _remarks(self, found: Inventory) -> tuple[str, ...]:
        """What a report should tell about optimizers that this memory does not protect."""
        guarded = [{id(p) for p in protection.parameters} for protection in self._protections]
        alone = unguarded(self._state, found.parameters, set().union(*guarded))
        still = without_weights(self._state, found.parameters, guarded)
        gone = self._strayed(found.parameters)
        return (*told_unguarded(alone), *told_without_weights(still), *told_strayed(gone))

    def _tell_other_weights(self, parameters: Mapping[str, Tensor]) -> None:
        names = [*self._strayed(parameters), *unrelated(self._state, parameters, steps=self._steps)]
        for message in told_other_weights(names, pulls=self.acts_on == "displacement"):
            warnings.warn(message, NsclWarning, stacklevel=3)

    def _warn_if_unprotected(self, found: Inventory) -> None:
        self._protections = [p for p in self._protections if p.active]
        if not self._protections:
            warnings.warn(
                "no optimizer is protected by this memory (never protected, re-created, or "
                "copied: copies lose their hooks); call memory.protect(optimizer) before training",
                NsclWarning,
                stacklevel=3,
            )
            return
        for message in told_strayed(self._strayed(found.parameters)):
            warnings.warn(message, NsclWarning, stacklevel=3)
