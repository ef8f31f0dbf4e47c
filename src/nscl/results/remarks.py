"""What a reader must know beside the numbers: the notes of results, and whose they are."""

from collections.abc import Iterable, Mapping
from typing import Any


def remarks(noted: Iterable[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """A line for every note, with the rows it is about: which further images, how many old ones.

    >>> remarks([("gd-wild", {"pool": "digits", "coreset": 30}), ("muc-mas", {"pool": "digits"})])
    ['pool digits: gd-wild, muc-mas', 'coreset 30: gd-wild']
    """
    found: dict[str, dict[str, None]] = {}
    for label, notes in noted:
        for name, value in notes.items():
            found.setdefault(f"{name} {value}", {})[label] = None
    return [f"{what}: {', '.join(labels)}" for what, labels in found.items()]
