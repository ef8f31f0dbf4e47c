"""Runs that differ in their seed only are one series; a section has one benchmark and stream."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nscl.metrics import Summary, summary
from nscl.reporting.gather import Run
from nscl.reporting.labels import SeedGroup, common_settings, differing, labels
from nscl.reporting.order import in_order
from nscl.reporting.streams import stream
from nscl.results import flat, has_unlearned_tasks, preset_of_record, remarks

# Settings that only change what is recorded do not make another experiment.
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
    def marked(self) -> str:
        """The label as charts show it: marked while no run is finished."""
        return self.label if self.finished else f"{self.label} (unfinished)"

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
        """What the method keeps of old tasks: nothing, parameters or data; None if unknown."""
        results = [run.result for run in self.runs if run.result is not None]
        return results[0].stores if results else None

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks that belong beside the numbers."""
        return remarks(run.result for run in self.finished if run.result is not None)

    @property
    def has_unlearned_tasks(self) -> bool:
        """Whether a finished run did not learn one of its tasks."""
        return any(has_unlearned_tasks(r.result) for r in self.finished if r.result is not None)

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
    """All series of one benchmark, preset and stream, which are the ones to be compared."""

    benchmark: str
    preset: str
    stream: str  # what sets it apart from the benchmark's own; empty if nothing does
    series: tuple[Series, ...]
    unlike: tuple[str, ...]  # settings of the protocol that differ between series
    common_settings: tuple[str, ...] = ()  # per method: usual values that its labels do not repeat
    twins: tuple[Run, ...] = ()  # repeats of an experiment and seed; not counted

    @property
    def title(self) -> str:
        """Name of the section."""
        return ", ".join(filter(None, (self.benchmark, self.preset, self.stream)))

    @property
    def shown(self) -> tuple[Series, ...]:
        """Series with at least one task to show."""
        return tuple(series for series in self.series if series.shown)

    @property
    def tasks(self) -> int:
        """Finished tasks of the series with the most of them."""
        return max((series.tasks for series in self.series), default=0)


def sections(runs: Iterable[Run]) -> list[Section]:
    """Sort runs into sections and series."""
    places: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        preset = preset_of_record(str(run.config.get("preset", "-")))
        place = run.benchmark, preset, stream(run.config)
        places.setdefault(place, []).append(run)
    return [_section(*place, found) for place, found in sorted(places.items())]


def _section(benchmark: str, preset: str, special: str, runs: list[Run]) -> Section:
    found: dict[str, list[Run]] = {}
    for run in runs:
        key = json.dumps([run.method, _settings(run)], sort_keys=True)
        found.setdefault(key, []).append(run)
    twins = [twin for group in found.values() for twin in _take_twins(group)]
    groups = in_order(SeedGroup(g[0].method, _settings(g[0]), g) for g in found.values())
    methods = dict.fromkeys(group.method for group in groups)
    siblings = {m: [g.settings for g in groups if g.method == m] for m in methods}
    return Section(
        benchmark=benchmark,
        preset=preset,
        stream=special,
        series=tuple(_series(*each) for each in zip(groups, labels(groups), strict=True)),
        unlike=tuple(differing([group.settings for group in groups], only=_PROTOCOL)),
        common_settings=tuple(filter(None, (common_settings(m, siblings[m]) for m in methods))),
        twins=tuple(twins),
    )


def _series(group: SeedGroup, label: str) -> Series:
    return Series(
        method=group.method,
        label=label,
        settings=group.settings,
        runs=tuple(sorted(group.runs, key=lambda run: run.seed)),
    )


def _take_twins(group: list[Run]) -> list[Run]:
    """Leave one run per seed, the one with the most data, and return the others."""
    group.sort(key=lambda run: (run.seed, not run.finished, -len(str(run.epochs[-1:]))))
    twins = [run for i, run in enumerate(group) if i and group[i - 1].seed == run.seed]
    group[:] = [run for run in group if run not in twins]
    return twins


def _settings(run: Run) -> dict[str, Any]:
    return {name: value for name, value in flat(run.config).items() if name not in _LOOKING}
