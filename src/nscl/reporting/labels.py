"""Names of series: the name its plan gave it, or its method and its unusual settings.

A value that more than half of a method's series have is usual, and noted once for all of them.
So 25 variants with one switch each are called by their switches. In a grid, where no value is
usual, each is called by all its values.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nscl.reporting.gather import Run

FlatSettings = Mapping[str, Any]  # "options.a", "optim.lr"
_MISSING = object()


@dataclass(frozen=True)
class SeedGroup:
    """Runs that differ in their seed only, before they have a name."""

    method: str
    settings: FlatSettings
    runs: list[Run]


def labels(groups: Sequence[SeedGroup]) -> list[str]:
    """A label for each group, no two alike: given ones where they say which group is meant."""
    given = [given_name(group.runs) for group in groups]
    made = [_made(group, groups) for group in groups]
    return [
        name if name and given.count(name) == 1 and name not in made else own
        for name, own in zip(given, made, strict=True)
    ]


def given_name(runs: Iterable[Run]) -> str | None:
    """The name a plan gave to these runs; None if it gave none, or several."""
    names = {run.environment.get("label") for run in runs} - {None}
    name = names.pop() if len(names) == 1 else None
    return " ".join(name.split()) or None if isinstance(name, str) else None


def unusual(mine: FlatSettings, siblings: Sequence[FlatSettings], *, but: str = "") -> str:
    """What is not as in most siblings, ``but`` aside: ``a=10, norms=freeze``."""
    found = standing_out(mine, siblings)
    return _listed({name: value for name, value in found.items() if name != but})


def standing_out(mine: FlatSettings, siblings: Sequence[FlatSettings]) -> dict[str, Any]:
    """The settings that are not as in most siblings."""
    common = usual(siblings)
    return {n: mine.get(n) for n in differing(siblings) if repr(mine.get(n)) != common.get(n)}


def common_settings(method: str, siblings: Sequence[FlatSettings]) -> str:
    """The usual values of what differs: ``adam-nscl: a=30, norms=ewc``; empty if there are none."""
    common = usual(siblings)
    names = [name for name in differing(siblings) if name in common]
    values = {n: next(s.get(n) for s in siblings if repr(s.get(n)) == common[n]) for n in names}
    return f"{method}: {_listed(values)}" if values else ""


def usual(siblings: Sequence[FlatSettings]) -> dict[str, str]:
    """Of each option the value that more than half of the siblings have, as text."""
    names = {name for each in siblings for name in each}
    found = {name: Counter(repr(s.get(name)) for s in siblings).most_common(1)[0] for name in names}
    return {name: value for name, (value, times) in found.items() if 2 * times > len(siblings)}


def differing(settings: Sequence[FlatSettings], *, only: tuple[str, ...] = ("",)) -> list[str]:
    """Names whose values are not the same everywhere."""
    names = {name for each in settings for name in each if name.startswith(only)}
    return sorted(n for n in names if len({repr(s.get(n, _MISSING)) for s in settings}) > 1)


def short(name: str) -> str:
    """The short name of an option: ``a`` for ``options.a``."""
    return name.removeprefix("options.")


def _made(group: SeedGroup, groups: Sequence[SeedGroup]) -> str:
    special = unusual(group.settings, [g.settings for g in groups if g.method == group.method])
    return f"{group.method} ({special})" if special else group.method


def _listed(values: FlatSettings) -> str:
    return ", ".join(f"{short(name)}={_plain(value)}" for name, value in values.items())


def _plain(value: Any) -> str:
    """Six digits where they are the whole number: two labels must not become one."""
    if not isinstance(value, float):
        return str(value)
    text = f"{value:g}"
    return text if float(text) == value else repr(value)
