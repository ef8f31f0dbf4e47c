"""All protections of one memory: what they hold still, and what happened without them.

A protected step leaves a trace that can be checked: no layer moves in held directions. So a memory
can warn about optimizers it does not protect, and about weights that are not its own.
"""

import warnings
from collections.abc import Mapping, Sequence

from torch import Tensor

from nscl.core.checks.other_weights import describe_other_weights
from nscl.core.checks.unprotected_updates import (
    biases_without_weights,
    describe_biases_without_weights,
    describe_moved_in_held,
    describe_unprotected,
    displaced_layers,
    moved_in_held,
    unprotected_layers,
)
from nscl.core.forgetting.measure import measure_shifts
from nscl.core.model.inventory import Inventory
from nscl.core.model.layer_types import running_statistics
from nscl.core.norms import running_stats
from nscl.core.protection.live_state import LiveState
from nscl.core.protection.step_hooks import Protection
from nscl.core.report.statistics import describe_large_shifts, describe_untracked
from nscl.core.state import State
from nscl.errors import NsclWarning, StatisticsWarning


class Protections:
    """The protections of one memory, and the norm layers whose statistics they hold."""

    def __init__(
        self, live: LiveState, *, freezes_statistics: bool, pulls_back: bool, can_trace: bool
    ) -> None:
        """``pulls_back``: displacements are treated; ``can_trace``: by one projection per task.

        Not the memory itself: a cycle would keep its tensors and files after it is deleted.
        """
        self.all: list[Protection] = []
        self._live, self._freezes_statistics = live, freezes_statistics
        self._pulls_back, self._can_trace = pulls_back, can_trace
        self._holding = running_stats.Holding()

    @property
    def optimizers(self) -> tuple[str, ...]:
        """What is protected, for reports."""
        return tuple(p.describe() for p in self.all if p.active)

    def add(self, protection: Protection) -> None:
        """Take one more, and drop those whose optimizer is gone.

        Each keeps a plan, with bases, on the device.
        """
        self.all = [*(p for p in self.all if p.active), protection]

    def remove(self, protection: Protection) -> None:
        """Drop one; without any, no statistics are held."""
        if protection in self.all:
            self.all.remove(protection)
        if not any(p.active for p in self.all):
            self._holding.release()

    def flush(self) -> None:
        """Treat all steps that wait."""
        for protection in self.all:
            protection.flush()

    def hold_statistics(self, found: Inventory) -> None:
        """Let norm layers normalise with the statistics that are remembered, unless they may move.

        Layers that keep none have none to hold; it matters where they normalise with the batch.
        """
        if self._freezes_statistics:
            norms = found.measured_norms
            kept = {name: module for name, module in norms.items() if running_statistics(module)}
            self._holding.take(kept, self._has_statistics)
            for message in describe_untracked(running_stats.without_statistics(norms)):
                warnings.warn(message, StatisticsWarning, stacklevel=3)

    def _has_statistics(self, norm: str) -> bool:
        return norm in self._live.state.statistics

    def before_switch(self, state: State) -> None:
        """Compiled models must notice that the statistics of other layers are held."""
        if self._holding and state.statistics.keys() != self._live.state.statistics.keys():
            running_stats.retrace()

    def moved_in_held(self, parameters: Mapping[str, Tensor]) -> list[str]:
        """Layers that an unprotected step has moved.

        With a projector that is unknown: each step may have been projected differently.
        """
        if not self._can_trace:
            return []
        live = self._live
        return moved_in_held(live.state, parameters, steps=live.steps, ignore=live.narrowed)

    def remarks(self, found: Inventory) -> tuple[str, ...]:
        """What a report should say about optimizers that are not protected."""
        protected = [{id(p) for p in protection.parameters} for protection in self.all]
        state = self._live.state
        alone = unprotected_layers(state, found.parameters, set().union(*protected))
        still = biases_without_weights(state, found.parameters, protected)
        return (
            *describe_unprotected(alone),
            *describe_biases_without_weights(still),
            *describe_moved_in_held(self.moved_in_held(found.parameters)),
        )

    def warn_if_displaced(self, parameters: Mapping[str, Tensor]) -> None:
        """Warn before ``acts_on="displacement"`` pulls back what no protected step has moved.

        Before the first step that is every displacement; later it shows in held directions only.
        """
        is_still = self._live.steps == 0
        layers = displaced_layers(self._live.state, parameters) if is_still else []
        self.warn_other_weights(layers or self.moved_in_held(parameters))

    def warn_other_weights(self, layers: Sequence[str]) -> None:
        """Warn that memory and model have different weights in these layers."""
        for message in describe_other_weights(layers, pulls=self._pulls_back):
            warnings.warn(message, NsclWarning, stacklevel=3)

    def warn_of_shifts(self, found: Inventory) -> None:
        """Warn if training has moved running statistics so far that old outputs have changed."""
        if not self._freezes_statistics:
            for message in describe_large_shifts(measure_shifts(self._live.state, found)):
                warnings.warn(message, StatisticsWarning, stacklevel=3)

    def warn_if_unprotected(self, found: Inventory) -> None:
        """Warn if no optimizer is protected, or if another one has moved held layers."""
        self.all = [p for p in self.all if p.active]
        if not self.all:
            warnings.warn(
                "no optimizer is protected by this memory (never protected, re-created, or "
                "copied: copies lose their hooks); call memory.protect(optimizer) before training",
                NsclWarning,
                stacklevel=3,
            )
            return
        for message in describe_moved_in_held(self.moved_in_held(found.parameters)):
            warnings.warn(message, NsclWarning, stacklevel=3)
