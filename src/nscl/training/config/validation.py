"""pydantic's errors in one line: which option is wrong, and what it may be."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from nscl.messages import did_you_mean
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
        first = problem.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        source = f"{file}: " if file else ""
        if first["type"] == "extra_forbidden":
            known = option_names(kind)
            hint = did_you_mean(path, known, otherwise=f"; known: {', '.join(known)}")
            raise ConfigError(f"{source}there is no option {where + path!r}{hint}") from problem
        raise ConfigError(f"{source}option {where + path!r}: {_reason(first)}") from problem


def wrong_value(problem: ValidationError) -> str:
    """The first wrong value in one line, its option as it is typed: ``--optim.later-lr``."""
    first = problem.errors()[0]
    parts = [part for part in first["loc"] if isinstance(part, str)]  # an index is not typed
    return f"option --{'.'.join(parts).replace('_', '-')}: {_reason(first)}"


# In place of the library's own words, by the beginning of its error types.
_EXPECTED = {
    "int_": "must be a whole number",
    "float_": "must be a number",
    "bool_": "must be true or false",
    "string_type": "must be text",
    "path_type": "must be a path",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "is a table of settings",
    "model_": "is a table of settings",
}


def _reason(error: "ErrorDetails") -> str:
    if error["type"] == "missing":
        return "is required"  # the input is all other values: too long to repeat
    text = next((t for kind, t in _EXPECTED.items() if error["type"].startswith(kind)), None)
    if text is None:
        text = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return f"{text[:1].lower()}{text[1:]}, not {error['input']!r}"


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
