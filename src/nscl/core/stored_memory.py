"""A memory as a value: its state, how that is saved, loaded and reduced, and what it takes.

``Memory`` adds what it does with the state: it protects optimizers and remembers data.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from nscl.core import serialization
from nscl.core.adapters.frozen import frozen, set_aside, without_unfrozen
from nscl.core.adapters.low_rank import (
    Adapter,
    check_room,
    default_rule,
    move_into_null_space,
    place,
)
from nscl.core.adapters.movement import remembered
from nscl.core.adapters.rename_layers import remove_adapters, rename_layers
from nscl.core.checks.estimate import Estimate, estimate
from nscl.core.checks.forget_layers import check_known, drop_layers
from nscl.core.checks.loaded_state import check_loaded
from nscl.core.checks.other_weights import digests_of_moved
from nscl.core.checks.unprotected_updates import UNKNOWN_STEPS
from nscl.core.covariance.offload import DiskOffload
from nscl.core.covariance.sharing.shared_values import mapped_once
from nscl.core.distributed.fsdp import reshard
from nscl.core.model.inventory import take_inventory, unwrap
from nscl.core.model.name_patterns import as_patterns, clean, follow_names, is_in
from nscl.core.norms.fisher import Anchor
from nscl.core.options import MemoryOptions
from nscl.core.projection.rules import Rule
from nscl.core.protection.live_state import LiveState
from nscl.core.state import State, check_model, projections_to_dict, with_projections
from nscl.errors import NsclError


class StoredMemory(MemoryOptions, ABC):
    """The state of a memory, with the options by which it was made."""

    def __init__(self, model: nn.Module, **options: Any) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"Memory needs a torch.nn.Module, not {type(model).__name__}")
        super().__init__(**options)
        self.model = unwrap(model)
        self._disk = DiskOffload() if self.offload == "disk" else None
        self._live = LiveState(
            self.model, exclude=self.exclude, allow_unsupported=self.unsupported != "error"
        )

    @property
    def _state(self) -> State:
        return self._live.state

    @property
    def tasks(self) -> int:
        """How many times ``remember`` has added to this memory."""
        return self._state.tasks

    @property
    def anchors(self) -> Mapping[str, Anchor]:
        """What the penalty pulls norm parameters towards, by name; see ``norms="ewc"``."""
        return self._state.anchors

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes of RAM held between steps, by purpose; constant in the number of tasks."""
        return self._state.nbytes

    def spectra(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Eigenvalues (ascending) and the weight of each direction, ``[groups, d]`` per layer."""
        return {name: (s.eigenvalues, s.weights) for name, s in self._state.spectra.items()}

    def estimate(self, model: nn.Module | None = None) -> Estimate:
        """Bytes and seconds that each layer will take, before any pass; and what options save.

        Shapes are enough: this memory's model, or another one to plan for, may be on the meta
        device. Nothing of a model is run or changed.

        >>> import nscl
        >>> with torch.device("meta"):
        ...     wide = nn.Linear(4096, 14336, bias=False)
        >>> plan = nscl.Memory(wide, rank=512).estimate()
        >>> plan.layers[0].covariance // 2**20, plan.layers[0].gradient // 2**20
        (16, 56)
        """
        if model is None:
            found = self._live.inventory(without_values=True)
        else:
            found = take_inventory(unwrap(model), exclude=self.exclude)
        return estimate(found, self)

    @abstractmethod
    def flush(self) -> None:
        """Treat all steps that ``every`` has left waiting."""

    def forget(self, names: Sequence[str]) -> None:
        """Drop what was remembered of layers that have been replaced or removed on purpose.

        Names and patterns are those of ``exclude``. A new layer of that name is free until it is
        remembered, and everything else stays held.
        """
        check_known(self._state, names)
        self.flush()
        self._replace(drop_layers(self._state, names))

    def adapt(
        self,
        adapters: Sequence[Adapter],
        *,
        names: Mapping[str, str] | None = None,
        rule: Rule | None = None,
    ) -> None:
        """Keep low-rank adapters beside remembered layers out of what old data use.

        ``names`` renames modules, parameters and buffers first, from old to new. A goes into the
        null space that ``rule`` leaves of the wrapped layer's inputs, B stays free, and all
        parameters that are frozen now are set aside. ``nscl.integrations.peft.prepare`` calls this.
        """
        self._refuse_projector("used with adapters")
        self.flush()
        with self._following(names or {}):
            state = rename_layers(self._state, names or {})
            found = self._live.inventory()
            check_model(state, found)
            own = rule or default_rule(self.rule)
            idle = set_aside(state, frozen(found.parameters))
            given, placed = place(idle, found, adapters, own)
            complete = given.projected(state, self._block_projector())
            check_room(complete, placed, own)
            self._switch(move_into_null_space(complete, found, placed))

    def remove_adapters(
        self, inside: Sequence[str], *, names: Mapping[str, str], merged: Mapping[str, Tensor]
    ) -> None:
        """Follow a model whose adapters are merged: the opposite of ``adapt``.

        What is ``inside`` of the wrappers is dropped, ``names`` renames the rest, and ``merged``
        has the weights of the last ``remember`` with the adapters of that time.
        """
        with self._following(names):
            state = remove_adapters(self._state, inside, names, merged)
            check_model(state, self._live.inventory())
            self._switch(state)

    @contextmanager
    def _following(self, names: Mapping[str, str]) -> Iterator[None]:
        """Let ``exclude`` mean the same parts under their new names, unless something fails."""
        before = self.exclude
        self._set_exclude(follow_names(before, names, self.model))
        try:
            yield
        except BaseException:
            self._set_exclude(before)
            raise

    def _set_exclude(self, patterns: tuple[str, ...]) -> None:
        vars(self)["exclude"] = self._live.exclude = patterns  # not another choice: other names

    @property
    def remembered(self) -> dict[str, Tensor]:
        """Weights and buffers at the last ``remember``, by name: what ``recall`` computes with."""
        return remembered(self._state)

    def decompose_unfrozen(self) -> None:
        """Decompose what was set aside as frozen and can move now."""
        if self._state.frozen:
            state = without_unfrozen(self._state, self._live.parameters())
            if state is not self._state:
                self._replace(state)

    def state_dict(self, *, flush: bool = True) -> dict[str, Any]:
        """Everything that cannot be recomputed, as tensors and plain data.

        Sharded weights are gathered for this, so every rank must call it; ``save`` likewise. Steps
        that wait are treated first, so take the model's own state after this one. ``flush=False``
        changes nothing: save the ``state_dict()`` of the protections too, or what waits is lost.
        """
        if flush:
            self.flush()
        return {
            "metadata": serialization.to_metadata(self._state, self.options(), self._digests()),
            "tensors": serialization.to_tensors(self._state),
            **({} if self.projector is None else projections_to_dict(self._state)),
        }

    def load_state_dict(self, state: Mapping[str, Any], *, exclude: Sequence[str] = ()) -> None:
        """Take over a ``state_dict``, except for excluded layers. All or nothing.

        The options of this memory stay as they are.

        ``exclude`` also leaves out layers that have been replaced or removed. It does not become an
        option of this memory: as after ``forget``, a new layer of that name is free until it is
        remembered.
        """
        saved = serialization.from_parts(state.get("metadata"), state.get("tensors", {}))
        self.flush()
        if self.projector is not None or "projections" in state:
            self._load_projections(saved, state, exclude)
        else:
            given = as_patterns(exclude)
            check_known(saved, [pattern for pattern in given if not is_in(self.model, pattern)])
            loaded = drop_layers(saved, (*self.exclude, *given))
            check_loaded(loaded, self._live.inventory(), self.rank)
            self._replace(loaded)
        self._live.restart(steps=UNKNOWN_STEPS)

    def save(self, path: str | Path, *, flush: bool = True) -> None:
        """Write one safetensors file to ship beside the model; ``flush`` as in ``state_dict``."""
        self._refuse_projector("saved to a file")
        if flush:
            self.flush()
        serialization.save(path, self._state, self.options(), self._digests())

    def _load_projections(
        self, saved: State, written: Mapping[str, Any], exclude: Sequence[str]
    ) -> None:
        """Take over a state whose projections came from a projector and cannot be recomputed."""
        if self.projector is None or "projections" not in written:
            made, own = ("a", "no") if self.projector is None else ("no", "a")
            raise NsclError(
                f"this state was made by a memory with {made} projector, and this memory has {own} "
                "one: load it into a memory that was made in the same way"
            )
        if exclude:
            self._refuse_projector("loaded in part (exclude)")
        found = self._live.inventory()
        check_model(saved, found)
        complete = with_projections(saved, written, found)
        check_loaded(complete, found, self.rank)
        self._switch(complete)

    def _refuse_projector(self, doing: str) -> None:
        """A projector may depend on everything before, so its projections are kept as they are."""
        if self.projector is not None:
            raise NsclError(
                f"a memory with a projector cannot be {doing}: its projections cannot be computed "
                "again from covariances; keep its state_dict() (after forget(...), if layers are "
                "to be left out), or use a rule"
            )

    def _digests(self) -> dict[str, str]:
        """What ``load`` needs to recognise weights that have moved since the last ``remember``.

        Not by the inventory, which is an error after a layer was replaced: saving never is.
        """
        reshard(self.model)
        parameters = {clean(name): p for name, p in self.model.named_parameters()}
        return digests_of_moved(self._state.reference, parameters)

    def _replace(self, state: State) -> None:
        """Complete a new state with spectra and projections, then switch to it in one go."""
        complete = state.projected(self._state, self._block_projector())
        if not self.keep_covariances:
            complete = replace(complete, covariances={})
        self._switch(complete)

    def _switch(self, complete: State) -> None:
        if self._disk is not None:
            stored = mapped_once(complete.covariances, self._disk.offload)
            complete = replace(complete, covariances=stored)
        self._live.switch(complete)
