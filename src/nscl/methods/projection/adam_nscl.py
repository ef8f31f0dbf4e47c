"""Adam-NSCL: updates in the null space of old features' covariance (Wang et al., CVPR 2021).

All of the method is ``nscl.Memory``; this file only says when to remember what.
Specification: docs/methods.md, "Adam-NSCL".
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import PositiveFloat

from nscl.core.projection.rules import Energy, Ratio, Ridge, Rule, Tolerance
from nscl.methods.base import Lab, Options
from nscl.methods.projection.base import ProjectionMethod, make_memory

_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2)  # of the energy, for nscl tune


class AdamNSCLOptions(Options):
    """The rule and its number, and the switches in which paper and released code differ."""

    used_with: ClassVar[Mapping[str, str]] = {
        "a": "rule ratio",
        "literal": "rule ratio",
        "share": "rule energy",
        "rtol": "rule tolerance",
        "alpha": "rule ridge",
    }

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


class AdamNSCL(ProjectionMethod):
    """Protect the backbone with a ``Memory``, and heads that later tasks train too."""

    options_type = AdamNSCLOptions
    scenarios: ClassVar[tuple[str, ...]] = ("task", "domain", "class")
    tuning: ClassVar = {"a": (3.0, 10.0, 30.0, 100.0)}

    def __init__(self, lab: Lab, options: AdamNSCLOptions) -> None:
        memory = make_memory(
            lab,
            rule=options.make_rule(),
            acts_on=options.acts_on,
            scale=options.scale,
            norms=options.norms,
        )
        super().__init__(lab, options, memory)
        self.choices = options

    @classmethod
    def strengths(cls, options: AdamNSCLOptions) -> Mapping[str, tuple[float, ...]]:
        """``a`` is the rule Ratio's; Ridge and Energy have their own, Tolerance has none to try."""
        own = {"ratio": "a", "ridge": "alpha", "energy": "share"}.get(options.rule)
        values = _SHARES if options.rule == "energy" else cls.tuning["a"]
        others = {name: tried for name, tried in cls.tuning.items() if name != "a"}
        return {own: values, **others} if own else others

    def end_task(self, task: int) -> None:
        """Add the task to the memory."""
        means = self.choices.features == "batch_mean"
        self.remember_task(task, augment=self.choices.stats_augment, batch_mean=means)
