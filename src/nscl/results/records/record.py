"""Records: frozen dataclasses whose fields pydantic checks, with errors of one line.

A record is checked when it is made and when it is read. Either way a wrong field is a FormatError
that names the source, the field and the value.
"""

import reprlib
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, dataclass_transform

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from nscl.messages import refused
from nscl.results.errors import FormatError

T = TypeVar("T")

Name = Annotated[str, Field(strict=True, min_length=1)]
Count = Annotated[int, Field(strict=True, ge=0)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Seconds = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]

MISSING = ("missing", "missing_argument", "missing_keyword_only_argument")
UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field, Field))
def record(kind: type[T]) -> type[T]:
    """Make a class a frozen, checked dataclass whose fields are given by name.

    >>> @record
    ... class Seed:
    ...     seed: Count
    >>> Seed(seed=-1)
    Traceback (most recent call last):
        ...
    nscl.results.errors.FormatError: Seed: seed must be greater than or equal to 0, got -1
    """
    made = dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))(kind)
    check = made.__init__

    def make(self: Any, **values: Any) -> None:
        try:
            check(self, **values)
        except ValidationError as problem:
            raise FormatError(f"{kind.__name__}{validation_message(problem)}") from problem

    made.__init__ = make  # type: ignore[method-assign]
    return cast("type[T]", made)


def checked(kind: type[T], values: Mapping[str, Any], *, place: str | Path, way_out: str = "") -> T:
    """Return ``values`` as a ``kind``, or say in one line what is wrong in ``place``."""
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as problem:
        end = f"; {way_out}" if way_out else ""
        raise FormatError(f"{place}{validation_message(problem)}{end}") from problem


def validation_message(problem: ValidationError) -> str:
    """Say what is wrong: all missing fields, or all unknown ones, or the first wrong value."""
    errors = problem.errors(include_url=False)
    missing = sorted(str(e["loc"][-1]) for e in errors if e["type"] in MISSING)
    if missing:
        return f" is incomplete: it lacks {', '.join(missing)}"
    unknown = sorted(str(e["loc"][-1]) for e in errors if e["type"] in UNKNOWN)
    if unknown:
        return f" has fields that nscl does not know: {', '.join(unknown)}"
    place, must, value = refused(errors)
    name = ".".join(str(part) for part in place)
    if errors[0]["type"] == "value_error":
        return f": {name}: {must}"
    return f": {name} {must}, got {reprlib.repr(value)}"
