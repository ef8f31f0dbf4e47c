"""Sweeps: ACC and BWT of one method against one numeric option, all other settings equal."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

from nscl.reporting.errors import NoFigureDataError
from nscl.reporting.labels import differing, short, unusual
from nscl.reporting.order import number
from nscl.reporting.series import Section, Series


@dataclass(frozen=True)
class Sweep:
    """ACC and BWT of one method against one numeric option, all else equal."""

    method: str
    option: str
    values: list[float]
    series: list[Series]
    beside: str = ""  # what else is unusual about all of them: "norms=freeze"

    @property
    def label(self) -> str:
        """What sets it apart from other sweeps of this option."""
        return self.beside or self.method


def sweeps(section: Section) -> list[Sweep]:
    """Every numeric option with curves of finished series that differ in nothing else.

    A curve takes three values; two are enough where nothing but this option was varied.
    """
    found: list[Sweep] = []
    for method in dict.fromkeys(series.method for series in section.series):
        siblings = [s for s in section.series if s.method == method and s.finished]
        names = differing([s.settings for s in siblings])
        for name in names:
            fewest = 2 if len(names) == 1 else 3
            found += [each for each in _curves(siblings, name) if len({*each.values}) >= fewest]
    if not found:
        raise NoFigureDataError(
            "no method was run with several values of one numeric option; for example "
            "run with --method.a 10, 100 and 1000"
        )
    return found


def together(found: Iterable[Sweep]) -> list[list[Sweep]]:
    """Sweeps of the same option of the same method, which share a chart."""
    charts: dict[tuple[str, str], list[Sweep]] = {}
    for each in found:
        charts.setdefault((each.method, each.option), []).append(each)
    return list(charts.values())


def logarithmic(chart: Iterable[Sweep]) -> bool:
    """Whether the values of a chart, all its lines, are spread over more than a factor of 20."""
    values = [value for each in chart for value in each.values]
    return min(values) > 0 and max(values) / min(values) > 20


def _curves(siblings: list[Series], name: str) -> Iterator[Sweep]:
    groups: dict[str, list[tuple[float, Series]]] = {}
    for series in siblings:
        place = number(series.settings, name)
        if place is not None:
            rest = {key: value for key, value in series.settings.items() if key != name}
            groups.setdefault(json.dumps(rest, sort_keys=True), []).append((place, series))
    for group in groups.values():
        group.sort(key=itemgetter(0))
        values, found = [place for place, _ in group], [series for _, series in group]
        beside = unusual(found[0].settings, [s.settings for s in siblings], but=name)
        yield Sweep(found[0].method, short(name), values, found, beside)
