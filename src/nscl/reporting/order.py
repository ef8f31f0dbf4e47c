"""The order of a method's rows: the plain one first, then similar ones side by side.

Rows are sorted by what is unusual in words (``rule=energy``), and where words are the same, by
numbers. What is usual is determined again among those rows: in a sweep beside another rule, the
number that most rows of the method have is one among others.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

from nscl.reporting.labels import FlatSettings, SeedGroup, differing, standing_out
from nscl.reporting.tables.published import rank


def in_order(groups: Iterable[SeedGroup]) -> list[SeedGroup]:
    """Methods as they were published, the rows of each by what is unusual about them."""
    found = sorted(groups, key=lambda group: rank(group.method))
    methods = groupby(found, key=lambda group: group.method)
    return [group for _, rows in methods for group in _rows(list(rows))]


def number(settings: FlatSettings, name: str) -> float | None:
    """An option's place on an axis; a later rate that is not set is the first task's.

    >>> number({"optim.lr": 0.002, "optim.later_lr": None}, "optim.later_lr")
    0.002
    """
    value = settings.get(name)
    if value is None and name == "optim.later_lr":
        value = settings.get("optim.lr")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _rows(groups: list[SeedGroup]) -> list[SeedGroup]:
    siblings = [group.settings for group in groups]
    numeric = {name for name in differing(siblings) if _is_numeric(name, siblings)}
    apart = {id(group): standing_out(group.settings, siblings) for group in groups}

    def words(group: SeedGroup) -> list[tuple[str, str]]:
        return [(n, str(value)) for n, value in apart[id(group)].items() if n not in numeric]

    alike = groupby(sorted(groups, key=words), key=words)
    found = [group for _, rows in alike for group in _by_numbers(list(rows))]
    return sorted(found, key=lambda group: bool(apart[id(group)]))


def _by_numbers(groups: list[SeedGroup]) -> list[SeedGroup]:
    siblings = [group.settings for group in groups]

    def numbers(group: SeedGroup) -> list[tuple[str, float]]:
        values = [(n, number(group.settings, n)) for n in standing_out(group.settings, siblings)]
        return [(n, -math.inf if value is None else value) for n, value in values]

    return sorted(groups, key=numbers)


def _is_numeric(name: str, siblings: Sequence[FlatSettings]) -> bool:
    return all(s.get(name) is None or number(s, name) is not None for s in siblings)
