"""The options of a memory: their values, which of them contradict each other, and that they stay.

Options are chosen once, when a memory is made: what it remembers is projected by them.
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

from nscl.core.model.name_patterns import as_patterns
from nscl.core.projection.projector import (
    BlockProjector,
    Projector,
    project_by_function,
    project_by_rule,
)
from nscl.core.projection.rules import RULES, Penalty, Proximal, Ratio, Rule, rule_to_dict

ActsOn = Literal["step", "displacement"]
Scale = Literal["none", "frobenius"]
Norms = Literal["ewc", "freeze", "train"]
StatisticsMode = Literal["update", "freeze"]
Unsupported = Literal["error", "freeze", "train"]
Offload = Literal["disk"]
Factors = Literal["kronecker", "input"]

EVERY = 20  # steps after which a proximal rule treats the displacement

_CHOICES: dict[str, tuple[str | None, ...]] = {
    "acts_on": get_args(ActsOn),
    "scale": get_args(Scale),
    "norms": get_args(Norms),
    "statistics": get_args(StatisticsMode),
    "unsupported": get_args(Unsupported),
    "offload": (None, *get_args(Offload)),
    "factors": get_args(Factors),
}


def check_choices(rule: Rule, **choices: str | None) -> None:
    """Refuse a value that an option does not have, and options that contradict each other.

    >>> from nscl.core.projection.rules import Ratio
    >>> check_choices(Ratio(10.0), scale="spectral")
    Traceback (most recent call last):
    ValueError: scale must be one of 'none', 'frobenius', not 'spectral'
    """
    if isinstance(rule, type) or not isinstance(rule, Rule):
        words = ", ".join(RULES)
        raise TypeError(f"rule must be one of nscl's ({words}), not {rule!r}")
    for name, value in choices.items():
        allowed = _CHOICES[name]
        if value not in allowed:
            words = ", ".join(map(repr, allowed))
            raise ValueError(f"{name} must be one of {words}, not {value!r}")
    if choices.get("scale") == "frobenius" and choices.get("acts_on") == "displacement":
        raise ValueError(
            "scale='frobenius' shrinks every step; acting on the whole displacement it would "
            "shrink the same movement again and again: use acts_on='step'"
        )


def check_rule(rule: Rule, *, acts_on: ActsOn, factors: Factors) -> None:
    """Refuse what a rule cannot do."""
    if isinstance(rule, Proximal):
        if acts_on == "step":
            raise ValueError(f"{rule!r} is about the whole displacement: acts_on='displacement'")
    elif factors == "kronecker":
        raise ValueError(
            f"{rule!r} weighs the inputs of a layer only: factors='input', or rule=nscl.Penalty()"
        )


def check_projector(projector: Projector, rule: Rule, **choices: str) -> None:
    """Refuse what only a rule could follow beside a projector."""
    if not callable(projector):
        raise TypeError(f"projector must be a function, not {type(projector).__name__}")
    fixed = {"acts_on": "step", "factors": "input", "scale": "none"}
    others = [f"{name}={v!r}" for name, v in choices.items() if v != fixed[name]]
    others += [f"rule={rule!r}"] if rule != Penalty() else []
    if others:
        raise ValueError(
            f"a projector replaces the rule and projects every step, so it cannot be combined with "
            f"{', '.join(others)}: leave these options out"
        )


def check_every(every: int, acts_on: ActsOn) -> None:
    """Refuse a number of steps below 1, and steps that would never be treated."""
    if type(every) is not int or every < 1:
        raise ValueError(f"every must be a whole number of steps from 1 on, not {every!r}")
    if every > 1 and acts_on == "step":
        raise ValueError(
            f"every={every} leaves steps to be treated later, which only a rule on the whole "
            "displacement can do: acts_on='displacement'"
        )


def check_rank(rank: int | None, rule: Rule, *, scale: Scale, has_projector: bool) -> None:
    """Refuse a rank below 1, and what needs the full covariance.

    >>> check_rank(0, Ratio(), scale="none", has_projector=False)
    Traceback (most recent call last):
    ValueError: rank must be a whole number from 1 on, or None, not 0
    """
    if rank is None:
        return
    if type(rank) is not int or rank < 1:
        raise ValueError(f"rank must be a whole number from 1 on, or None, not {rank!r}")
    needs = {
        "a projector": has_projector,
        repr(rule): rule.literal,
        "scale='frobenius'": scale == "frobenius",
    }
    if others := [name for name, given in needs.items() if given]:
        raise ValueError(f"{others[0]} needs full covariances: leave rank={rank} out")


class MemoryOptions:
    """The options of a memory: readable like any attribute, and chosen once."""

    rule: Rule
    acts_on: ActsOn
    scale: Scale
    norms: Norms
    statistics: StatisticsMode
    unsupported: Unsupported
    exclude: tuple[str, ...]
    rank: int | None
    offload: Offload | None
    factors: Factors
    every: int
    projector: Projector | None
    keep_covariances: bool

    def __init__(
        self,
        *,
        rule: Rule,
        factors: Factors | None,
        every: int | None,
        acts_on: ActsOn | None,
        scale: Scale,
        norms: Norms,
        statistics: StatisticsMode,
        unsupported: Unsupported,
        exclude: Sequence[str],
        rank: int | None,
        offload: Offload | None,
        projector: Projector | None,
        keep_covariances: bool,
    ) -> None:
        is_proximal = isinstance(rule, Proximal) and projector is None
        self.acts_on = acts_on or ("displacement" if is_proximal else "step")
        self.factors = factors or ("kronecker" if is_proximal else "input")
        self.every = every if every is not None else (EVERY if is_proximal else 1)
        self.scale, self.norms, self.statistics = scale, norms, statistics
        self.unsupported, self.offload = unsupported, offload
        self.projector, self.keep_covariances = projector, keep_covariances
        self.rank = rank
        check_every(self.every, self.acts_on)
        check_choices(rule, **{name: getattr(self, name) for name in _CHOICES})
        if projector is not None:
            check_projector(
                projector, rule, acts_on=self.acts_on, factors=self.factors, scale=scale
            )
            rule = Ratio()  # never applied; hard, so that reports count whole directions
        elif not keep_covariances:
            raise ValueError(
                "a rule needs all covariances: keep_covariances=False needs projector="
            )
        check_rule(rule, acts_on=self.acts_on, factors=self.factors)
        check_rank(rank, rule, scale=scale, has_projector=projector is not None)
        self.rule, self.exclude = rule, as_patterns(exclude)

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse a second choice: projections made by the first would stay, and files would lie."""
        if name in MemoryOptions.__annotations__ and name in vars(self):
            raise AttributeError(
                f"{name} of a memory cannot be changed: make another one, "
                f"Memory(model, {name}=...), load this one's state_dict() into it, and let it "
                "protect the optimizer instead"
            )
        super().__setattr__(name, value)

    def options(self) -> dict[str, Any]:
        """How this memory was configured, as plain data."""
        return {
            "rule": rule_to_dict(self.rule),
            "acts_on": self.acts_on,
            "scale": self.scale,
            "norms": self.norms,
            "statistics": self.statistics,
            "unsupported": self.unsupported,
            "exclude": list(self.exclude),
            "rank": self.rank,
            "offload": self.offload,
            "factors": self.factors,
            "every": self.every,
        }

    def _block_projector(self) -> BlockProjector:
        """How blocks are projected: by the projector that was handed in, or by the rule."""
        if self.projector is not None:
            return project_by_function(self.projector)
        return project_by_rule(self.rule, frobenius=self.scale == "frobenius")
