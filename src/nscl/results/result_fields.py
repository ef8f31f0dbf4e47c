"""Which fields a result has, and which values each may hold."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from nscl.results.errors import FormatError

STORES = ("nothing", "parameters", "data")
FIGURES = ("acc", "bwt", "forgetting", "learning_accuracy")


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _seconds(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(float(value)) and float(value) >= 0  # type: ignore[arg-type]


def _object(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) for key in value)


def _optional(allowed: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or allowed(value)


Check = tuple[Callable[[object], bool], str]

FIELDS: Mapping[str, Check] = {
    "directory": (_text, "a name"),
    "benchmark": (_text, "a name"),
    "method": (_text, "a name"),
    "preset": (_optional(_text), "a name or null"),
    "seed": (_count, "a whole number from 0 on"),
    "accuracy": (_object, "an accuracy matrix"),
    "seconds": (_seconds, "a number of seconds"),
    "seconds_per_task": (
        lambda value: isinstance(value, list) and all(map(_seconds, value)),
        "a list of seconds",
    ),
    "seconds_per_step": (_optional(_seconds), "a number of seconds or null"),
    "steps": (_count, "a whole number from 0 on"),
    "peak_memory_bytes": (_optional(_count), "a number of bytes or null"),
    "state_bytes": (_count, "a number of bytes"),
    "model_bytes": (_count, "a number of bytes"),
    "stores": (lambda value: value in STORES, f"one of {', '.join(STORES)}"),
    "config": (_object, "an object"),
    "environment": (_object, "an object"),
    "notes": (_object, "an object"),
}


def check_types(stored: Mapping[str, Any], *, place: str) -> None:
    """Refuse the first field whose value is of the wrong kind, naming it and what it should be."""
    for name, (allowed, description) in FIELDS.items():
        if not allowed(stored[name]):
            raise FormatError(f"{place}: {name} must be {description}, got {stored[name]!r}")
