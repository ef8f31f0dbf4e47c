"""What a memory can be told to do, which choices contradict each other, and that they stay."""

from typing import Any, Literal, get_args

from nscl.core.rules import Rule, rule_to_dict

ActsOn = Literal["step", "displacement"]
Scale = Literal["none", "frobenius"]
Norms = Literal["ewc", "freeze", "train"]
StatisticsMode = Literal["update", "freeze"]
Unsupported = Literal["error", "freeze", "train"]
Offload = Literal["disk"]

_CHOICES: dict[str, tuple[str | None, ...]] = {
    "acts_on": get_args(ActsOn),
    "scale": get_args(Scale),
    "norms": get_args(Norms),
    "statistics": get_args(StatisticsMode),
    "unsupported": get_args(Unsupported),
    "offload": (None, *get_args(Offload)),
}


def check_choices(rule: Rule, **said: str | None) -> None:
    """Refuse a word that is none of an option's, and what cannot be had together.

    >>> from nscl.core.rules import Ratio
    >>> check_choices(Ratio(10.0), scale="spectral")
    Traceback (most recent call last):
    ValueError: scale must be one of 'none', 'frobenius', not 'spectral'
    """
    if isinstance(rule, type) or not isinstance(rule, Rule):
        raise TypeError(f"rule must be Ratio, Energy, Tolerance or Ridge, not {rule!r}")
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
        }
