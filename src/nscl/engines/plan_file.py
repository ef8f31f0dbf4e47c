"""A plan as a file: what to run, what it costs, which figures it should reach.

Options of the command line make the same object, so there is one way from what was said to runs::

    description = "Adam-NSCL against fine-tuning"
    command = "nscl compare --plan experiments/x.toml"
    benchmark = "split-cifar100-10"
    preset = "cpu"
    methods = ["finetune", "adam-nscl"]     # or "all"
    seeds = 3                               # or [0, 4, 7]

    [settings]                              # of all runs, names as in `nscl run --config`
    optim.epochs = 5
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

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from nscl.engines.plan import Plan, Variant, choose_methods, pick_names, variant
from nscl.methods.registry import METHODS
from nscl.training.config import ConfigError, Part, merge, nearest, read_toml, validated

ELSEWHERE = {
    "benchmark": "benchmark, outside of all tables",
    "method": "options.NAME for its options, or methods and [[variants]]",
    "seed": "seeds, outside of all tables",
}


class VariantEntry(Part):
    """A further row of the table: a name, a method, and what is special about it."""

    name: str = Field(min_length=1)
    method: str
    settings: dict[str, Any] = Field(default_factory=dict)


class PlanFile(Part):
    """What a plan says; see the module's text for the file."""

    description: str = ""
    command: str = ""
    benchmark: str
    preset: Literal["paper", "official", "cpu", "quick"] | None = None
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
        """Read a TOML plan; ``over`` is what the command line said instead."""
        said = {name: value for name, value in over.items() if name != "methods"}
        written = read_toml(path)
        plan = validated(cls, merge(written, said), file=path)
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
        # Of a row that is left out they are no mistake; of a row that never was they still are.
        left_out = self._methods_named() - rows
        overrides = {name: said for name, said in self.overrides.items() if name not in left_out}
        return self.model_copy(update={"methods": rest, "variants": kept, "overrides": overrides})

    def _check_expected(self, path: Path, *, sweep: Mapping[str, Any]) -> None:
        """Refuse figures of no row of the plan as it is written: the command line may change it."""
        methods, points = sorted(self._methods_named()), grid_points(sweep)
        labels = [variant(method, point).label for method in methods for point in points]
        rows = list(dict.fromkeys([*methods, *(entry.name for entry in self.variants), *labels]))
        for name in self.expected:
            if name not in rows:
                told = f"figures are expected of {name!r}, which is no row of the plan."
                raise ConfigError(f"{path}: {told}{nearest(name, rows)}")

    def _check_settings(self) -> None:
        """Refuse what a plan says elsewhere: in a table of settings nothing would read it."""
        tables = {"settings": self.settings}
        tables |= {f"overrides.{method}": said for method, said in self.overrides.items()}
        tables |= {f"variant {entry.name!r}": entry.settings for entry in self.variants}
        for table, said in tables.items():
            for name in said.keys() & ELSEWHERE.keys():
                raise ConfigError(f"{name!r} in {table} has no effect: use {ELSEWHERE[name]}")

    def _methods_named(self) -> set[str]:
        listed = pick_names(self.methods) if isinstance(self.methods, str) else self.methods
        methods = METHODS if listed == ["all"] else listed
        return {*methods, *(entry.method for entry in self.variants)}

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds one by one."""
        seeds = range(self.seeds) if isinstance(self.seeds, int) else dict.fromkeys(self.seeds)
        if not list(seeds) or min(seeds) < 0:
            raise ConfigError(f"seeds = {self.seeds} names no seed: say how many, or which")
        return tuple(seeds)

    def plan(self, said: Mapping[str, Any]) -> tuple[Plan, tuple[str, ...]]:
        """The runs, and what is worth telling before they start; ``said`` wins over the file."""
        self._check_settings()
        scenario = merge(self.settings, said).get("data", {}).get("scenario")
        names, unfit = (
            choose_methods(self.methods, self.benchmark, scenario=scenario)
            if self.methods
            else ([], [])
        )
        notes = [f"note: not for this kind of stream: {', '.join(unfit)}"] if unfit else []
        notes += [f"note: cost: {_listed(self.cost)}"] if self.cost else []
        rows = tuple(self._rows(names, said))
        if not rows:
            raise ConfigError("nothing to run: name methods (all, or a,b,c) or variants")
        _check_labels(rows, self.overrides)
        settings = merge(self.settings, {"preset": self.preset})
        return Plan(self.benchmark, rows, self.all_seeds, settings), tuple(notes)

    def _rows(self, names: list[str], said: Mapping[str, Any]) -> Iterator[Variant]:
        for method in names:
            mine = merge(self.overrides.get(method, {}), said)
            for point in grid_points(self.sweep):
                yield _over(mine, variant(method, point))
        for entry in self.variants:
            mine = merge(merge(self.overrides.get(entry.method, {}), entry.settings), said)
            yield Variant(entry.name, entry.method, mine, named=True)


def _check_rows(names: Sequence[str], variants: Sequence[str]) -> None:
    """Refuse what is neither a method nor a variant: a variant may have been misspelled."""
    for name in names:
        if variants and name not in METHODS and name != "all" and ":" not in name:
            near = nearest(name, [*variants, *METHODS])
            raise ConfigError(f"there is no method and no variant {name!r}.{near}")


def grid_points(sweep: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every combination of a sweep's values; one empty point for no sweep.

    >>> grid_points({"method": {"a": [1, 2]}, "optim.lr": [0.1]})
    [{'method.a': 1, 'optim.lr': 0.1}, {'method.a': 2, 'optim.lr': 0.1}]
    """
    axes = dict(_flat(sweep))
    for name, values in axes.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"sweep {name!r} wants a list of values, not {values!r}")
    return [dict(zip(axes, point, strict=True)) for point in product(*axes.values())]


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


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
