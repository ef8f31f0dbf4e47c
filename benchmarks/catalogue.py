"""Which figures there are. A new one is a decorated function in a module named in ``MODULES``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module

from benchmarks.figure import Figure
from benchmarks.timing import Stopwatch

MODULES = (
    "steps",
    "displacements",
    "covariances",
    "factors",
    "decompositions",
    "footprint",
    "wide",
    "recalling",
    "training",
)

Measure = Callable[[Stopwatch], Figure]


@dataclass(frozen=True)
class Entry:
    """A figure that can be measured; ``full`` ones take minutes and wait for ``--full``."""

    measure: Measure
    full: bool


_ENTRIES: dict[str, Entry] = {}


def figure(name: str, *, full: bool = False) -> Callable[[Measure], Measure]:
    """Register the function that measures a figure under the name that ``--only`` takes."""

    def register(measure: Measure) -> Measure:
        _ENTRIES[name] = Entry(measure, full)
        return measure

    return register


def catalogue() -> dict[str, Entry]:
    """All figures by name, in the order of the table."""
    # Whoever was imported first, a module's figures stand where the module does.
    order = [import_module(f"benchmarks.{module}").__name__ for module in MODULES]
    ordered = sorted(_ENTRIES.items(), key=lambda item: order.index(item[1].measure.__module__))
    return dict(ordered)


def chosen(only: Sequence[str], *, full: bool) -> dict[str, Entry]:
    """The figures asked for: by name, or all that are not kept for ``--full``."""
    entries = catalogue()
    if unknown := [name for name in only if name not in entries]:
        raise LookupError(f"there is no figure {unknown[0]!r}; there are: {', '.join(entries)}")
    if only:
        return {name: entries[name] for name in entries if name in only}
    return {name: entry for name, entry in entries.items() if full or not entry.full}
