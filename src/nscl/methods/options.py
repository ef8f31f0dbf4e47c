"""The options of a method: checked fields, and which of them have an effect beside the others.

Methods derive theirs from ``Options``, which ``nscl.methods.base`` hands on.
"""

from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Self, get_args

from pydantic import BaseModel, ConfigDict, model_validator


class Options(BaseModel):
    """A method's options: validated, frozen, reachable as ``--method.NAME``.

    ``used_with`` names options that have an effect only with a value of another one. The condition
    is ``"OTHER VALUE"``, ``"OTHER not VALUE"`` or ``"OTHER above 0"``:

    >>> class OnlineOptions(Options):
    ...     used_with: ClassVar[Mapping[str, str]] = {"gamma": "form online"}
    ...     form: str = "separate"
    ...     gamma: float = 1.0
    >>> OnlineOptions(gamma=0.5).unread(), OnlineOptions(form="online").unread()
    ({'gamma': 'form online'}, {})
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    used_with: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _none(cls, values: Any) -> Any:
        """Read ``none`` as None where an option may be None: on the command line and in files."""
        if not isinstance(values, Mapping):
            return values
        fields = cls.model_fields.items()
        may = {name for name, field in fields if NoneType in get_args(field.annotation)}
        return {k: None if v == "none" and k in may else v for k, v in values.items()}

    def unread(self) -> dict[str, str]:
        """Options without an effect beside the others, each with the condition it waits for."""
        missing = {name: self._missing(name) for name in self.used_with}
        return {name: condition for name, condition in missing.items() if condition}

    def _missing(self, name: str) -> str | None:
        """The condition that does not hold: the option's own, or that of the option it needs."""
        condition = self.used_with.get(name)
        if condition is None:
            return None
        other, wanted = condition.split(" ", 1)
        holds = _holds(getattr(self, other), wanted)
        return self._missing(other) or (None if holds else condition)

    def beside_library(self) -> str:
        """How the method differs from a library class that it is easily taken for; or nothing."""
        return ""

    def settled(self, benchmark: str, data_dir: Path | None) -> Self:
        """The same with what depends on the disk filled in; called before the run is named."""
        return self


def _holds(value: Any, wanted: str) -> bool:
    if wanted == "above 0":
        return bool(value > 0)
    if wanted.startswith("not "):
        return str(value) != wanted.removeprefix("not ")
    return str(value) == wanted
