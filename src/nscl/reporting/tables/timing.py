"""Whether the seconds of runs can be compared: only those of a machine that did nothing else.

A run records the load of its machine, before it began and at the end of every task. What exceeds
its own threads is the work of others.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nscl.reporting.series import Series

BUSY = 0.5  # processors that others used


def load_of_others(environment: Mapping[str, Any]) -> float | None:
    """Processors that other programs used or waited for; None if it was not recorded.

    >>> load_of_others({"cpus": 2, "threads": 1, "load": 0.1, "load_while_running": 2.4})
    1.4
    >>> load_of_others({"cpus": 2, "threads": 1})
    """
    before, during = environment.get("load"), environment.get("load_while_running")
    own = environment.get("threads") or environment.get("cpus") or 1
    known = [] if before is None else [float(before)]
    known += [] if during is None else [round(float(during) - own, 2)]
    return max(0.0, *known) if known else None


def loads(series: Iterable[Series]) -> list[float | None]:
    """The load of others, of every finished run."""
    return [load_of_others(run.environment) for each in series for run in each.finished]


def is_quiet(series: Iterable[Series]) -> bool:
    """Whether every run is known to have had its machine for itself."""
    return all(load is not None and load <= BUSY for load in loads(series))


def times_are_shown(series: Sequence[Series]) -> bool:
    """Whether seconds have a column: on a quiet machine, or where every row shows their spread."""
    return is_quiet(series) or all(len(each.finished) > 1 for each in series)


def how_rough(series: Sequence[Series]) -> str:
    """What stands behind the title of a chart of times; empty if the machine was quiet."""
    return "" if is_quiet(series) else " (rough: of a machine that was or may have been shared)"


def caveat(series: Sequence[Series]) -> str:
    """What a reader must know about seconds; empty if the machine was quiet."""
    if not series or is_quiet(series):
        return ""
    found = loads(series)
    busy = [load for load in found if load is not None and load > BUSY]
    unknown = found.count(None)
    reasons = []
    if busy:
        reasons.append(
            f"{len(busy)} of {len(found)} runs shared their machine "
            f"(up to {max(busy):.1f} processors were at other work)"
        )
    if unknown:
        some = "no run" if unknown == len(found) else f"{len(found) - unknown} of {len(found)} runs"
        reasons.append(f"{some} recorded the load of its machine")
    end = "seconds are rough" if times_are_shown(series) else "the time of a step is left out"
    text = f"{'; '.join(reasons)}: {end}."
    return text[0].upper() + text[1:]
