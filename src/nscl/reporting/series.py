"""Runs that differ in their seed only are one series; a section is one benchmark and preset."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nscl.metrics import Summary, summary
from nscl.reporting.gather import Run
from nscl.reporting.published import rank
from nscl.results import remarks

# What is looked at along the way does not make another experiment.
_LOOKING = frozenset({"seed", "eval_each_epoch", "track_old_losses"})
_PROTOCOL = ("optim.", "data.", "model.", "bn_stats", "precision")


@dataclass(frozen=True, kw_only=True)
class Series:
    """One method in one setting, over seeds."""

    method: str
    label: str
    settings: Mapping[str, Any]  # flat: "options.a", "optim.lr"
    runs: tuple[Run, ...]

    @property
    def finished(self) -> tuple[Run, ...]:
        """Runs that count in tables."""
        return tuple(run for run in self.runs if run.finished)

    @property
    def shown(self) -> tuple[Run, ...]:
        """Runs that count in curves: finished ones, or while there are none, what there is."""
        return self.finished or tuple(run for run in self.runs if run.accuracy.tasks)

    @property
    def stores(self) -> str | None:
        """What the method keeps of old tasks: nothing, parameters or data; None if not known."""
        results = [run.result for run in self.runs if run.result is not None]
        return results[0].stores if results else None

    @property
    def remarks(self) -> tuple[str, ...]:
        """What must stand beside the numbers."""
        return remarks(run.result for run in self.finished if run.result is not None)

    @property
    def tasks(self) -> int:
        """How many tasks every shown run has finished."""
        return min((run.accuracy.tasks for run in self.shown), default=0)

    def figure(self, name: str) -> Summary | None:
        """Mean and deviation of a figure of the results; None without a finished run."""
        values = [getattr(run.result, name) for run in self.finished]
        known = [value for value in values if value is not None]
        return summary(known) if known else None

    def memory_ratio(self) -> Summary | None:
        """State kept between tasks relative to the network: the paper's memory ratio."""
        results = [run.result for run in self.finished if run.result is not None]
        ratios = [r.state_bytes / r.model_bytes for r in results if r.model_bytes]
        return summary(ratios) if ratios else None


@dataclass(frozen=True, kw_only=True)
class Section:
    """All series of one benchmark and preset, which are the ones to be compared."""

    benchmark: str
    preset: str
    series: tuple[Series, ...]
    unlike: tuple[str, ...]  # settings of the protocol that are not the same in all of them
    twins: tuple[Run, ...] = ()  # the same experiment and seed once more; they count nowhere

    @property
    def title(self) -> str:
        """Name of the section."""
        return f"{self.benchmark}, {self.preset}"

    @property
    def shown(self) -> tuple[Series, ...]:
        """Series with at least one task to show."""
        return tuple(series for series in self.series if series.shown)

    @property
    def tasks(self) -> int:
        """The longest stream among the series."""
        return max((series.tasks for series in self.series), default=0)


def sections(runs: Iterable[Run]) -> list[Section]:
    """Sort runs into sections and series."""
    places: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        places.setdefault((run.benchmark, str(run.config.get("preset", "-"))), []).append(run)
    return [_section(*place, found) for place, found in sorted(places.items())]


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted names to values.

    >>> flat({"optim": {"lr": 0.1}, "seed": 0})
    {'optim.lr': 0.1, 'seed': 0}
    """
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _section(benchmark: str, preset: str, runs: list[Run]) -> Section:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        key = json.dumps([run.method, _settings(run)], sort_keys=True)
        groups.setdefault(key, []).append(run)
    twins = [twin for group in groups.values() for twin in _take_twins(group)]
    found = [(group[0].method, _settings(group[0]), group) for group in groups.values()]
    series = [
        Series(
            method=method,
            label=_label(method, settings, [s for m, s, _ in found if m == method]),
            settings=settings,
            runs=tuple(sorted(group, key=lambda run: run.seed)),
        )
        for method, settings, group in found
    ]
    series.sort(key=lambda s: (rank(s.method), _order(s.settings)))
    unlike = differing([s for _, s, _ in found], only=_PROTOCOL)
    return Section(
        benchmark=benchmark,
        preset=preset,
        series=tuple(series),
        unlike=tuple(unlike),
        twins=tuple(twins),
    )


def _take_twins(group: list[Run]) -> list[Run]:
    """Leave one run per seed, the one that tells most, and return the others."""
    group.sort(key=lambda run: (run.seed, not run.finished, -len(str(run.epochs[-1:]))))
    twins = [run for i, run in enumerate(group) if i and group[i - 1].seed == run.seed]
    group[:] = [run for run in group if run not in twins]
    return twins


def _settings(run: Run) -> dict[str, Any]:
    return {name: value for name, value in flat(run.config).items() if name not in _LOOKING}


def differing(settings: list[dict[str, Any]], *, only: tuple[str, ...] = ("",)) -> list[str]:
    """Names whose values are not the same everywhere."""
    names = {name for each in settings for name in each if name.startswith(only)}
    missing = object()
    return sorted(n for n in names if len({repr(s.get(n, missing)) for s in settings}) > 1)


def _label(method: str, mine: dict[str, Any], siblings: list[dict[str, Any]]) -> str:
    names = differing(siblings)
    told = ", ".join(f"{short(name)}={_plain(mine.get(name))}" for name in names)
    return f"{method} ({told})" if told else method


def short(name: str) -> str:
    """The name of an option as people say it: ``a`` for ``options.a``."""
    return name.removeprefix("options.")


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _order(settings: Mapping[str, Any]) -> list[tuple[int, float, str]]:
    """Numbers in numeric order, everything else as text."""
    return [
        (0, float(value), "") if _is_number(value) else (1, 0.0, str(value))
        for _, value in sorted(settings.items())
    ]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
