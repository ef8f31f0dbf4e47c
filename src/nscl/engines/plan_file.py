"""A plan as a file: runs, cost and expected figures.

Options of the command line make the same object, so there is one way from options to runs::

    description = "Adam-NSCL against fine-tuning"
    command = "nscl compare --plan experiments/x.toml"
    benchmark = "split-cifar100-10"
    preset = "cpu"
    methods = ["finetune", "adam-nscl"]     # or "all"
    seeds = 3                               # or [0, 4, 7]

    [settings]                              # of all runs, names as in `nscl run --config`
    optim.epochs = 5                        # or epochs = 5
    [overrides.adam-nscl]                   # of one method
    options.a = 30
    [[variants]]                            # a further row of the table
    name = "frozen norms"
    method = "adam-nscl"
    settings.options.norms = "freeze"
    [sweep]                                 # every combination, for each of the methods
    method.a = [10, 20, 30]
    [cost]                                  # measured
    machine = "2 cores"
    minutes = 12
    [expected.finetune]
    acc = 61.2
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import Field

from nscl.engines.plan import RunPlan, Variant, choose_methods, make_variant, pick_names
from nscl.messages import did_you_mean
from nscl.methods.registry import METHODS
from nscl.results import flat
from nscl.training.config.layers import merge, read_toml
from nscl.training.config.schema import ConfigError, Part, PresetName
from nscl.training.config.short_names import full_name, with_full_names
from nscl.training.config.validation import validated

ELSEWHERE = {
    "benchmark": "benchmark, outside of all tables",
    "method": "options.NAME for its options, or methods and [[variants]]",
    "seed": "seeds, outside of all tables",
}


class VariantEntry(Part):
    """A further row of the table: a name, a method and its special settings."""

    name: str = Field(min_length=1)
    method: str
    settings: dict[str, Any] = Field(default_factory=dict)


class PlanFile(Part):
    """The content of a plan file; the module's docstring shows one."""

    description: str = ""
    command: str = ""
    benchmark: str
    preset: PresetName | None = None
    methods: str | list[str] = Field(default_factory=list)
    seeds: int | list[int] = 3
    settings: dict[str, Any] = Field(default_factory=dict)
    overrides: dict[str, dict[str, Any]] = Field(default_factory=dict)
    variants: list[VariantEntry] = Field(default_factory=list)
    sweep: dict[str, Any] = Field(default_factory=dict)
    cost: dict[str, Any] = Field(default_factory=dict)
    expected: dict[str, dict[str, float | str]] = Field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, over: Mapping[str, Any]) -> "PlanFile":
        """Read a TOML plan; ``over`` has the values of the command line, which win."""
        given = {name: value for name, value in over.items() if name != "methods"}
        written = read_toml(path)
        plan = validated(cls, merge(written, given), file=path)
        plan._check_expected(path, sweep=written.get("sweep", {}))
        return plan.narrowed(over["methods"]) if over.get("methods") else plan

    def narrowed(self, names: list[str] | str) -> "PlanFile":
        """The same plan for some of its rows: methods or variants by name."""
        known = [entry.name for entry in self.variants]
        chosen = pick_names(names, known) if isinstance(names, str) else names
        kept = [entry for entry in self.variants if entry.name in chosen]
        rest = [name for name in chosen if name not in known]
        _check_rows(rest, known)
        rows = {*rest, *(entry.method for entry in kept)}
        # Overrides of a row that is left out are dropped; of an unknown row they stay an error.
        left_out = self._methods_named() - rows
        overrides = {name: v for name, v in self.overrides.items() if name not in left_out}
        return self.model_copy(update={"methods": rest, "variants": kept, "overrides": overrides})

    def _check_expected(self, path: Path, *, sweep: Mapping[str, Any]) -> None:
        """Refuse figures of an unknown row; rows are those of the file, before the command line."""
        methods, points = sorted(self._methods_named()), grid_points(sweep)
        labels = [make_variant(method, point).label for method in methods for point in points]
        rows = list(dict.fromkeys([*methods, *(entry.name for entry in self.variants), *labels]))
        for name in self.expected:
            if name not in rows:
                hint = did_you_mean(name, rows, otherwise=f"; its rows: {', '.join(rows)}")
                wrong = f"figures are expected of {name!r}, which is not a row of the plan"
                raise ConfigError(f"{path}: {wrong}{hint}")

    def _with_full_names(self) -> "PlanFile":
        """The same plan without short names of settings."""
        own = {name: _full(f"overrides.{name}", table) for name, table in self.overrides.items()}
        variants = [
            v.model_copy(update={"settings": _full(f"variant {v.name!r}", v.settings)})
            for v in self.variants
        ]
        settings = _full("settings", self.settings)
        return self.model_copy(
            update={"settings": settings, "overrides": own, "variants": variants}
        )

    def _check_settings(self) -> None:
        """Refuse settings that have their own place in a plan: in a table they have no effect."""
        tables = {"settings": self.settings}
        tables |= {f"overrides.{method}": table for method, table in self.overrides.items()}
        tables |= {f"variant {entry.name!r}": entry.settings for entry in self.variants}
        for title, table in tables.items():
            for name in table.keys() & ELSEWHERE.keys():
                raise ConfigError(f"{name!r} in {title} has no effect: use {ELSEWHERE[name]}")

    def _methods_named(self) -> set[str]:
        listed = pick_names(self.methods) if isinstance(self.methods, str) else self.methods
        methods = METHODS if listed == ["all"] else listed
        return {*methods, *(entry.method for entry in self.variants)}

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds one by one."""
        seeds = range(self.seeds) if isinstance(self.seeds, int) else dict.fromkeys(self.seeds)
        if not list(seeds) or min(seeds) < 0:
            raise ConfigError(f"seeds = {self.seeds} names no seed: give their number or a list")
        return tuple(seeds)

    def plan(self, given: Mapping[str, Any]) -> tuple[RunPlan, tuple[str, ...]]:
        """The runs, and notes to show before they start; ``given`` wins over the file."""
        return self._with_full_names()._plan(given)

    def _plan(self, given: Mapping[str, Any]) -> tuple[RunPlan, tuple[str, ...]]:
        self._check_settings()
        scenario = merge(self.settings, given).get("data", {}).get("scenario")
        names, unfit = (
            choose_methods(self.methods, self.benchmark, scenario=scenario)
            if self.methods
            else ([], [])
        )
        notes = (
            [f"note: left out because they cannot use this stream: {', '.join(unfit)}"]
            if unfit
            else []
        )
        notes += [f"note: cost: {_listed(self.cost)}"] if self.cost else []
        rows = tuple(self._rows(names, given))
        if not rows:
            raise ConfigError("nothing to run: name methods (all, or a,b,c) or variants")
        _check_labels(rows, self.overrides)
        settings = merge(self.settings, {"preset": self.preset})
        return RunPlan(self.benchmark, rows, self.all_seeds, settings), tuple(notes)

    def _rows(self, names: list[str], given: Mapping[str, Any]) -> Iterator[Variant]:
        for method in names:
            mine = merge(self.overrides.get(method, {}), given)
            for point in grid_points(self.sweep):
                yield _over(mine, make_variant(method, point))
        for entry in self.variants:
            mine = merge(merge(self.overrides.get(entry.method, {}), entry.settings), given)
            yield Variant(entry.name, entry.method, mine, named=True)


def _check_rows(names: Sequence[str], variants: Sequence[str]) -> None:
    """Refuse a name that is neither a method nor a variant; a variant may be misspelled."""
    for name in names:
        if variants and name not in METHODS and name != "all" and ":" not in name:
            known = [*variants, *METHODS]
            hint = did_you_mean(name, known, otherwise=f"; known: {', '.join(known)}")
            raise ConfigError(f"there is no method and no variant {name!r}{hint}")


def _full(title: str, table: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return with_full_names(table)
    except ConfigError as problem:
        raise ConfigError(f"{title}: {problem}") from problem


def grid_points(sweep: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every combination of a sweep's values; one empty point for no sweep.

    >>> grid_points({"method": {"a": [1, 2]}, "optim.lr": [0.1]})
    [{'method.a': 1, 'optim.lr': 0.1}, {'method.a': 2, 'optim.lr': 0.1}]
    """
    axes = flat(sweep)
    _check_once(axes)
    for name, values in axes.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"sweep {name!r} needs a list of values, not {values!r}")
    return [dict(zip(axes, point, strict=True)) for point in product(*axes.values())]


def _check_once(names: Iterable[str]) -> None:
    """Refuse an option that is to vary under its short name and its full one."""
    known: dict[str, str] = {}
    for name in names:
        full = full_name(name).replace("-", "_")
        if full in known:
            raise ConfigError(
                f"sweep {name!r} and {known[full]!r} are one and the same option: leave one out"
            )
        known[full] = name


def _over(settings: Mapping[str, Any], row: Variant) -> Variant:
    return Variant(row.label, row.method, merge(settings, row.settings))


def _check_labels(rows: tuple[Variant, ...], overrides: Mapping[str, Any]) -> None:
    labels = [row.label for row in rows]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise ConfigError(f"two rows are called {twice[0]!r}: give each variant its own name")
    idle = sorted(set(overrides) - {row.method for row in rows})
    if idle:
        raise ConfigError(f"overrides of {idle[0]!r}, which is not among the plan's methods")


def _listed(table: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in table.items())
