"""Adam-NSCL: updates in the null space of old features' covariance (Wang et al., CVPR 2021).

All of the method is ``nscl.Memory``; this file only says when to remember what. METHODS §2.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import PositiveFloat
from torch import Tensor
from torch.optim import Optimizer

from nscl.core.memory import Memory
from nscl.core.protection import Protection
from nscl.core.rules import Energy, Ratio, Ridge, Rule, Tolerance
from nscl.methods.base import Lab, Method, Options, Phase


class AdamNSCLOptions(Options):
    """The rule and its number, and the switches in which paper and released code differ."""

    rule: Literal["ratio", "energy", "tolerance", "ridge"] = "ratio"
    a: PositiveFloat = 10.0  # Ratio
    share: PositiveFloat = 0.05  # Energy
    rtol: PositiveFloat = 1e-10  # Tolerance
    alpha: PositiveFloat = 10.0  # Ridge
    literal: bool = False  # the authors' float32 rule
    acts_on: Literal["step", "displacement"] = "step"
    scale: Literal["none", "frobenius"] = "none"
    norms: Literal["ewc", "freeze", "train"] = "ewc"
    features: Literal["per_sample", "batch_mean"] = "per_sample"
    stats_augment: bool = True  # covariances of augmented images, as the authors take them

    def make_rule(self) -> Rule:
        """The rule these options name."""
        if self.rule == "energy":
            return Energy(self.share)
        if self.rule == "tolerance":
            return Tolerance(self.rtol)
        return Ridge(self.alpha) if self.rule == "ridge" else Ratio(self.a, literal=self.literal)


class AdamNSCL(Method):
    """Protect the backbone with a ``Memory``; heads are per task and need no protection."""

    options_type = AdamNSCLOptions

    def __init__(self, lab: Lab, options: AdamNSCLOptions) -> None:
        super().__init__(lab, options)
        self.choices = options
        self.memory = Memory(
            lab.model,
            rule=options.make_rule(),
            acts_on=options.acts_on,
            scale=options.scale,
            norms=options.norms,
            exclude=("heads",) if lab.stream.scenario == "task" else (),
        )
        self._protection: Protection | None = None

    def optimizer(self, task: int, phase: Phase) -> Optimizer:
        """The usual optimizer, guarded."""
        if self._protection is not None:
            self._protection.remove()
        self._guarded = super().optimizer(task, phase)
        self._protection = self.memory.protect(self._guarded)
        return self._guarded

    def end_task(self, task: int) -> None:
        """Add the task to the memory; after the last one nothing can be forgotten any more."""
        if task + 1 < self.lab.tasks:
            batches = self.lab.loader(
                self.training_split(task),
                purpose="remember",
                augment=None if self.choices.stats_augment else "none",
            )
            self.memory.remember(
                batches,
                forward=lambda model, batch: model(batch[0], task),
                batch_mean=self.choices.features == "batch_mean",
            )

    def metrics(self) -> dict[str, float]:
        """Free directions, and how far old outputs have moved since the last task."""
        if not self.memory.tasks:
            return {}
        total = self.memory.report().total
        forgetting = self.memory.forgetting()
        shifts = [s.shift for s in forgetting.statistics]
        return {
            "free": total.free / total.features,
            "share": total.share,
            "drift": forgetting.total.relative,
            "statistics_shift": max(shifts, default=0.0),
        }

    def spectra(self) -> Mapping[str, tuple[Tensor, Tensor]]:
        """Eigenvalues and weights of every layer."""
        return self.memory.spectra()

    def state_bytes(self) -> int:
        """Covariances, weights at the last task, anchors and the thin bases."""
        return sum(self.memory.nbytes.values())

    def task_state(self) -> dict[str, Any]:
        """The memory."""
        return self.memory.state_dict() if self.memory.tasks else {}

    def load_task_state(self, state: Mapping[str, Any]) -> None:
        """Take the memory back; its bases are rebuilt."""
        if state:
            self.memory.load_state_dict(state)

    def close(self) -> None:
        """Take the guard off."""
        if self._protection is not None:
            self._protection.remove()
            self._protection = None
