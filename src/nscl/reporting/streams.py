"""A run's stream in words: numbers of different streams are never compared."""

from collections.abc import Mapping
from typing import Any


def stream(config: Mapping[str, Any]) -> str:
    """What sets a run's stream apart from its benchmark's own; empty if nothing does.

    >>> stream({"data": {"first": 3, "order": "random", "order_seed": 1, "size": None}})
    'first 3 tasks, random order 1'
    >>> stream({"data": {"first": None, "order": "natural", "order_seed": 1}})
    ''
    >>> stream({"data": {"scenario": "class"}})
    'one growing head'
    """
    data = config.get("data")
    data = data if isinstance(data, Mapping) else {}
    words = {name: text for name, text in _WORDS.items() if data.get(name) is not None}
    if data.get("order") != "random":
        words.pop("order", None)
    if data.get("scenario") == "class":
        words["scenario"] = "one growing head"
    values = {name: str(value) for name, value in {"order_seed": 0, **data}.items()}
    text = ", ".join(each.format(**values) for each in words.values())
    return text.replace("first 1 tasks", "first task")


_WORDS = {
    "tasks": "classes in {tasks} tasks",
    "first": "first {first} tasks",
    "order": "random order {order_seed}",
    "scenario": "{scenario} scenario",
    "size": "{size} pixels",
    "holdout": "tested on {holdout} of the training data",
    "digest": "stream {digest:.8}",
}
