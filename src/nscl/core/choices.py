"""What a memory can be told to do, and which choices contradict each other."""

from typing import Literal, get_args

from nscl.core.rules import Rule

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
