"""Whole numbers of the command line: 2.5 is an error that says so, where cyclopts would take 2."""

from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter, Token


def whole_number(kind: Any, tokens: Sequence[Token]) -> int:
    """Read a number as Python writes it, such as 8."""
    value = tokens[0].value
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"input should be a whole number, not {value!r}") from None


Whole = Annotated[int, Parameter(converter=whole_number)]
