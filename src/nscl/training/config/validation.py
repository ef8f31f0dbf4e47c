"""pydantic's errors in one line: which option is wrong, and what it may be."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from nscl.messages import did_you_mean, refused
from nscl.training.config.schema import ConfigError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

C = TypeVar("C", bound=BaseModel)


def validated(
    kind: type[C], values: Mapping[str, Any], *, where: str = "", file: Path | None = None
) -> C:
    """Validate, or name the wrong option in one line.

    ``where`` is the table that the options are in, such as ``method.``; ``file`` is the file they
    were read from.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as problem:
        source = f"{file}: " if file else ""
        raise ConfigError(f"{source}{wrong_option(problem, kind, where=where)}") from problem


def wrong_option(problem: ValidationError, kind: type[BaseModel], *, where: str = "") -> str:
    """The first wrong option in one line: why it is refused, or that there is none of that name."""
    first = problem.errors()[0]
    place, must, value = refused(problem.errors())
    name = ".".join(str(part) for part in place)
    if first["type"] == "extra_forbidden":
        known = option_names(kind)
        hint = did_you_mean(name, known, otherwise=f"; known: {', '.join(known)}")
        return f"there is no option {where + name!r}{hint}"
    return f"option {where + name!r}: {_reason(first, must, value)}" if place else must


def wrong_value(problem: ValidationError) -> str:
    """The first wrong value in one line, its option as it is typed: ``--optim.later-lr``."""
    place, must, value = refused(problem.errors())
    parts = [part for part in place if isinstance(part, str)]  # an index is not typed
    name = ".".join(parts).replace("_", "-")
    return f"option --{name}: {_reason(problem.errors()[0], must, value)}"


def _reason(error: "ErrorDetails", must: str, value: Any) -> str:
    if error["type"] == "missing":
        return "is required"  # the input is all other values: too long to repeat
    return f"{must}, not {value!r}"


def option_names(kind: type[BaseModel], prefix: str = "") -> list[str]:
    """All options as they are typed: ``optim.lr``."""
    names = []
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            names += option_names(inner, f"{prefix}{name}.")
        else:
            names.append(f"{prefix}{name}")
    return names
