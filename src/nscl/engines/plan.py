"""Plans: variants of methods times seeds on one benchmark, and how options and grids are read."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nscl import pretrained
from nscl.data.catalogue import find_benchmark
from nscl.engines.job import Job
from nscl.engines.workers.local import with_thread_share
from nscl.methods.registry import METHODS, load_method, method_info
from nscl.training.config.build import build_config
from nscl.training.config.layers import Settings, merge
from nscl.training.config.schema import ConfigError
from nscl.training.config.short_names import full_name
from nscl.training.tracking.tracker import check_library

NOT_VARIED = {
    "seed": "--seeds",
    "method": "nscl compare --methods",
    "benchmark": "one command per benchmark",
    "out": "--out",
    "label": "[[variants]] of a plan",
    # Not part of a run's name: all rows would be one and the same run.
    "device": "--device",
    "threads": "--threads",
    "data_dir": "--data-dir",
    "track": "--track",
}


@dataclass(frozen=True)
class Variant:
    """One row of the final table: a method and its special settings.

    A label that a person gave (``named``) is kept with the runs.
    """

    label: str
    method: str
    settings: Settings = field(default_factory=dict)
    named: bool = False


@dataclass(frozen=True)
class RunPlan:
    """Variants × seeds on one benchmark; ``settings`` hold for all.

    >>> plan = RunPlan("split-digits-5", (Variant("plain", "finetune"),), seeds=(0, 1))
    >>> [job.title for job in plan.jobs()]
    ['plain seed 0', 'plain seed 1']
    """

    benchmark: str
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...] = (0, 1, 2)
    settings: Settings = field(default_factory=dict)

    def jobs(self, *, side_by_side: int | None = 1) -> list[Job]:
        """All runs, seed by seed, so that a first comparison is complete early.

        ``side_by_side`` runs share the cores of this machine; None: each has its own core.
        """
        find_benchmark(self.benchmark)
        return [
            self._job(variant, seed, side_by_side)
            for seed in self.seeds
            for variant in self.variants
        ]

    def _job(self, variant: Variant, seed: int, side_by_side: int | None) -> Job:
        settings = merge(merge(self.settings, variant.settings), {"method": variant.method})
        label = {"label": variant.label} if variant.named else {}
        config = build_config(self.benchmark, {**settings, **label, "seed": seed})
        return Job(
            with_thread_share(config, jobs=side_by_side, threads=settings.get("threads")),
            variant.label,
        )


def parse_seeds(text: str) -> tuple[int, ...]:
    """Turn ``3`` into seeds 0, 1, 2, and ``0,4,7`` into just these.

    >>> parse_seeds("3"), parse_seeds("0,4"), parse_seeds("5,")
    ((0, 1, 2), (0, 4), (5,))
    """
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ConfigError(f"--seeds is a number, 3, or a list, 0,4,7; not {text!r}") from None
    seeds = numbers if "," in text else list(range(sum(numbers)))
    if not seeds or min(seeds) < 0:
        raise ConfigError(
            f"--seeds {text!r} names no seed: give their number, from 1 on, or a list, from 0 on"
        )
    return tuple(dict.fromkeys(seeds))


def pick_names(text: str, known: Sequence[str] = ()) -> list[str]:
    """Names separated by commas; a known name may contain commas, and the longest wins.

    >>> pick_names("finetune, plain,rate 1e-3 ,gem", ["plain, rate 1e-3"])
    ['finetune', 'plain, rate 1e-3', 'gem']
    """
    by_parts = {_parts(name): name for name in known}
    parts, names = _parts(text), list[str]()
    while parts:
        longest = next((n for n in range(len(parts), 0, -1) if parts[:n] in by_parts), 1)
        names.append(by_parts.get(parts[:longest], parts[0]))
        parts = parts[longest:]
    return list(dict.fromkeys(names))


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def choose_methods(
    names: str | Sequence[str], benchmark: str, *, scenario: str | None = None
) -> tuple[list[str], list[str]]:
    """Method names, and the methods that "all" leaves out because they cannot use the stream."""
    names = pick_names(names) if isinstance(names, str) else names
    if list(names) != ["all"]:
        if not names:
            raise ConfigError("no method is named: use all, or a,b,c")
        if "all" in names:
            raise ConfigError("all means every method: use all alone, or a,b,c")
        return [method_info(name).name for name in dict.fromkeys(names)], []
    entry = find_benchmark(benchmark)
    known = {name: load_method(name) for name in METHODS}
    wanted = scenario or entry.scenario
    fit = [n for n, kind in known.items() if wanted in kind.scenarios and entry.kind in kind.kinds]
    return fit, [name for name in METHODS if name not in fit]


def make_variant(method: str, point: Mapping[str, Any]) -> Variant:
    """A variant from dotted option names and their values."""
    settings: dict[str, Any] = {}
    for name, value in point.items():
        instead = NOT_VARIED.get(name.replace("-", "_"))
        if instead:
            raise ConfigError(f"{name!r} is not an option to vary: use {instead}")
        settings = merge(settings, nested(name, value))
    values = " ".join(f"{name.split('.')[-1]}={_as_text(value)}" for name, value in point.items())
    return Variant(f"{method} {values}".strip(), method, settings)


def nested(name: str, value: Any) -> dict[str, Any]:
    """Turn a dotted name, or a short one, into nested settings.

    >>> nested("method.a", 10), nested("lr", 0.1)
    ({'options': {'a': 10}}, {'optim': {'lr': 0.1}})
    """
    parts = full_name(name).replace("-", "_").split(".")
    if parts[0] == "method" and len(parts) > 1:
        parts[0] = "options"
    for part in reversed(parts):
        value = {part: value}
    return dict(value)


def parse_axes(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Read ``name=value,value`` texts; values are JSON where they can be, else words.

    >>> parse_axes(["method.a=10,20", "method.rule=ratio,energy"])
    {'method.a': [10, 20], 'method.rule': ['ratio', 'energy']}
    """
    axes: dict[str, list[Any]] = {}
    for text in texts:
        name, values = parse_axis(text)
        axes[name] = axes.get(name, []) + values
    return axes


def parse_axis(text: str) -> tuple[str, list[Any]]:
    """Read one ``name=value,value``."""
    name, sign, values = text.partition("=")
    if not sign or not name.strip() or not values.strip():
        raise ConfigError(f"--set needs name=value,value, for example method.a=10,20; not {text!r}")
    try:
        found = json.loads(f"[{values}]")
    except ValueError:
        found = [part.strip() for part in values.split(",") if part.strip()]
    return name.strip(), found


def check_data(benchmark: str, data_dir: Path | None) -> None:
    """Report once, before any process starts, that data are missing or broken."""
    from nscl.data.catalogue import find_dataset, is_own
    from nscl.data.disk.locate import require

    if not is_own(benchmark) and find_dataset(benchmark).forms:
        require(find_dataset(benchmark), benchmark, data_dir)


def check_models(jobs: Iterable[Job]) -> None:
    """Report once, before any process starts, that a pretrained network is missing."""
    for name in dict.fromkeys(job.config.model.name for job in jobs):
        if pretrained.is_pretrained(name):
            pretrained.check(name)


def check_trackers(jobs: Iterable[Job]) -> None:
    """Report once, before any process starts, that the library of --track is missing."""
    for name in dict.fromkeys(job.config.track for job in jobs):
        check_library(name)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
