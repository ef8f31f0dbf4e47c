"""Which stream a run has learned, in words: numbers of unlike streams are never compared."""

from collections.abc import Mapping
from typing import Any


def stream(config: Mapping[str, Any]) -> str:
    """What sets a run's stream apart from its benchmark's own; empty if nothing does.

    >>> stream({"data": {"first": 3, "order": "random", "order_seed": 1, "size": None}})
    'first 3 tasks, random order 1'
    >>> stream({"data": {"first": None, "order": "natural", "order_seed": 1}})
    ''
    """
    data = config.get("data")
    data = data if isinstance(data, Mapping) else {}
    said = {name: text for name, text in _WORDS.items() if data.get(name) is not None}
    if data.get("order") != "random":
        said.pop("order", None)
    told = {name: str(value) for name, value in {"order_seed": 0, **data}.items()}
    words = ", ".join(text.format(**told) for text in said.values())
    return words.replace("first 1 tasks", "first task")


_WORDS = {
    "tasks": "classes in {tasks} tasks",
    "first": "first {first} tasks",
    "order": "random order {order_seed}",
    "scenario": "{scenario} scenario",
    "size": "{size} pixels",
    "digest": "stream {digest:.8}",
}
