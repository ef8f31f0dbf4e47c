"""Parts of error messages: the nearest known name, and another library's error in one line."""

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """Suggest the known name nearest to ``name``; ``otherwise`` if none is near.

    >>> did_you_mean("resnet-18", ["mlp", "resnet18"])
    " (did you mean 'resnet18'?)"
    >>> did_you_mean("vgg", ["mlp", "resnet18"], otherwise="; known: mlp, resnet18")
    '; known: mlp, resnet18'
    """
    close = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else otherwise


def one_line(error: Exception) -> str:
    r"""The type and the text of ``error`` without its line breaks.

    >>> one_line(ValueError("no good,\n   at all"))
    'ValueError: no good, at all'
    """
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def refused(errors: "Sequence[ErrorDetails]") -> tuple[tuple[int | str, ...], str, Any]:
    """The first wrong value of pydantic's errors: its place, what it must be, and the value.

    A place that may hold values of several kinds has an error for each kind. They become one, or
    the one that looked further inside.

    >>> from pydantic import TypeAdapter, ValidationError
    >>> try:
    ...     TypeAdapter(dict[str, int | list[int]]).validate_python({"seeds": "x"})
    ... except ValidationError as problem:
    ...     refused(problem.errors())
    (('seeds',), 'must be a whole number or a list', 'x')
    """
    place = _before_kind(errors[0]["loc"])
    alike = [error for error in errors if error["loc"][: len(place)] == place]
    inside = [error for error in alike if len(_without_kinds(error["loc"])) > len(place)]
    if inside:
        return _without_kinds(inside[0]["loc"]), _must(inside[0]), inside[0]["input"]
    texts = list(dict.fromkeys(_must(error) for error in alike))
    must = " or ".join([texts[0], *(text.removeprefix("must be ") for text in texts[1:])])
    return place, must, errors[0]["input"]


# What pydantic puts into a place to say which of several kinds it has tried.
_KIND = re.compile(r"int|float|str|bool|none|(list|tuple|dict|constrained|function)[-\[].*")
# In place of the library's own words, by the beginning of its error types.
_EXPECTED = {
    "int_": "must be a whole number",
    "float_": "must be a number",
    "bool_": "must be true or false",
    "finite_number": "must be a finite number",
    "string_too_short": "must not be empty",
    "string_": "must be text",
    "path_type": "must be a path",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a table of names and values",
    "mapping_type": "must be a table of names and values",
    "model_": "must be a table of names and values",
    "dataclass_": "must be a table of names and values",
    "none_required": "must be left out",
}


def _before_kind(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The place up to the first kind in it."""
    kinds = [i for i, part in enumerate(loc) if i and _is_kind(part)]
    return loc[: kinds[0]] if kinds else loc


def _without_kinds(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    return tuple(part for i, part in enumerate(loc) if not (i and _is_kind(part)))


def _is_kind(part: int | str) -> bool:
    return isinstance(part, str) and _KIND.fullmatch(part) is not None


def _must(error: "ErrorDetails") -> str:
    """What the value must be, in plain words."""
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    text = next((t for kind, t in _EXPECTED.items() if error["type"].startswith(kind)), None)
    return text or re.sub(r"^\w+ should ", "must ", error["msg"])
