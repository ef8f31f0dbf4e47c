"""Names of many layers in few words: cut short, or as patterns of those that differ in numbers."""

from collections import Counter
from collections.abc import Sequence

MANY = 30  # lines of a table; beyond them layers are shown by pattern


def listed(names: Sequence[str]) -> str:
    """Up to four names, and how many more there are.

    >>> listed(["a", "b", "c", "d", "e"])
    'a, b, c, d and 1 more'
    """
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def pattern_of(name: str) -> str:
    """The name with a star for each part that is a number.

    >>> pattern_of("encoder.layer.11.attention.q"), pattern_of("fc1")
    ('encoder.layer.*.attention.q', 'fc1')
    """
    return ".".join("*" if part.isdecimal() else part for part in name.split("."))


def in_short(names: Sequence[str]) -> str:
    """A few names as they are, many by their patterns.

    >>> in_short([f"layer.{i}.q" for i in range(12)] + ["head"])
    'layer.*.q (12 layers), head'
    """
    if len(names) <= 4:
        return listed(names)
    by_pattern: dict[str, list[str]] = {}
    for name in names:
        by_pattern.setdefault(pattern_of(name), []).append(name)
    return listed([one_name(pattern, found) for pattern, found in by_pattern.items()])


def one_name(pattern: str, names: Sequence[str]) -> str:
    """A single name as it is, several by their pattern and number."""
    return names[0] if len(names) == 1 else f"{pattern} ({len(names)} layers)"


def common(words: Sequence[str]) -> str:
    """All of them in one, each once."""
    return ", ".join(Counter(words))
