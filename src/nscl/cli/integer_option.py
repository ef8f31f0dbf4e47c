"""Integers on the command line: 2.5 is an error, where cyclopts alone would take 2."""

from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter, Token


def parse_integer(kind: Any, tokens: Sequence[Token]) -> int:
    """Read an integer as Python writes it, such as 8."""
    value = tokens[0].value
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"must be a whole number, not {value!r}") from None


Integer = Annotated[int, Parameter(converter=parse_integer)]
