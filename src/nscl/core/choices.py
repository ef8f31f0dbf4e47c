"""What a memory can be told to do, which choices contradict each other, and that they stay."""

from typing import Any, Literal, get_args

from nscl.core.rules import RULES, Proximal, Rule, rule_to_dict

ActsOn = Literal["step", "displacement"]
Scale = Literal["none", "frobenius"]
Norms = Literal["ewc", "freeze", "train"]
StatisticsMode = Literal["update", "freeze"]
Unsupported = Literal["error", "freeze", "train"]
Offload = Literal["disk"]
Factors = Literal["kronecker", "input"]

_CHOICES: dict[str, tuple[str | None, ...]] = {
    "acts_on": get_args(ActsOn),
    "scale": get_args(Scale),
    "norms": get_args(Norms),
    "statistics": get_args(StatisticsMode),
    "unsupported": get_args(Unsupported),
    "offload": (None, *get_args(Offload)),
    "factors": get_args(Factors),
}


def check_choices(rule: Rule, **said: str | None) -> None:
    """Refuse a word that is none of an option's, and what cannot be had together.

    >>> from nscl.core.rules import Ratio
    >>> check_choices(Ratio(10.0), scale="spectral")
    Traceback (most recent call last):
    ValueError: scale must be one of 'none', 'frobenius', not 'spectral'
    """
    if isinstance(rule, type) or not isinstance(rule, Rule):
        words = ", ".join(RULES)
        raise TypeError(f"rule must be one of nscl's ({words}), not {rule!r}")
    for name, value in said.items():
        allowed = _CHOICES[name]
        if value not in allowed:
            words = ", ".join(map(repr, allowed))
            raise ValueError(f"{name} must be one of {words}, not {value!r}")
    if said.get("scale") == "frobenius" and said.get("acts_on") == "displacement":
        raise ValueError(
            "scale='frobenius' shrinks every step; acting on the whole displacement it would "
            "shrink the same movement again and again: use acts_on='step'"
        )
    if isinstance(rule, Proximal):
        if said.get("acts_on") == "step":
            raise ValueError(f"{rule!r} is about the whole displacement: acts_on='displacement'")
    elif said.get("factors") == "kronecker":
        raise ValueError(
            f"{rule!r} weighs the inputs of a layer only: factors='input', or rule=nscl.Penalty()"
        )


def check_every(every: int, acts_on: ActsOn) -> None:
    """Refuse a number of steps that is none, and steps that nobody looks at."""
    if type(every) is not int or every < 1:
        raise ValueError(f"every must be a whole number of steps from 1 on, not {every!r}")
    if every > 1 and acts_on == "step":
        raise ValueError(
            f"every={every} leaves steps to be treated later, which only a rule on the whole "
            "displacement can do: acts_on='displacement'"
        )


class Chosen:
    """The options of a memory: readable like any attribute, and chosen once."""

    rule: Rule
    acts_on: ActsOn
    scale: Scale
    norms: Norms
    statistics: StatisticsMode
    unsupported: Unsupported
    exclude: tuple[str, ...]
    offload: Offload | None
    factors: Factors
    every: int

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse a second choice: projections made by the first would stay, and files would lie."""
        if name in Chosen.__annotations__ and name in vars(self):
            raise AttributeError(
                f"{name} of a memory cannot be changed: what is remembered was projected by it. "
                f"Make another one, Memory(model, {name}=...), give it this one's state_dict() by "
                "load_state_dict, and let it protect the optimizer instead"
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
            "offload": self.offload,
            "factors": self.factors,
            "every": self.every,
        }
