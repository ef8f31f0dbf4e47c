"""What is to be run: variants of a method times seeds, on one benchmark; options and grids."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nscl.data.catalogue import find_benchmark
from nscl.engines.job import Job
from nscl.engines.local import divided
from nscl.methods.registry import METHODS, load_method, method_info
from nscl.training.config import ConfigError, merge
from nscl.training.prepare import build_config

Settings = Mapping[str, Any]
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
}


@dataclass(frozen=True)
class Variant:
    """One row of the final table: a method and what is special about it.

    A label that a person gave (``named``) says what options cannot, and is kept with the runs.
    """

    label: str
    method: str
    settings: Settings = field(default_factory=dict)
    named: bool = False


@dataclass(frozen=True)
class Plan:
    """Variants × seeds on one benchmark; ``settings`` hold for all.

    >>> plan = Plan("split-digits-5", (Variant("plain", "finetune"),), seeds=(0, 1))
    >>> [job.title for job in plan.jobs()]
    ['plain seed 0', 'plain seed 1']
    """

    benchmark: str
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...] = (0, 1, 2)
    settings: Settings = field(default_factory=dict)

    def jobs(self, *, side_by_side: int | None = 1) -> list[Job]:
        """All runs, seed by seed, so that a first comparison is there early.

        ``side_by_side`` runs share the cores of this machine; None: each has a core of its own.
        """
        find_benchmark(self.benchmark)
        return [
            self._job(variant, seed, side_by_side)
            for seed in self.seeds
            for variant in self.variants
        ]

    def _job(self, variant: Variant, seed: int, side_by_side: int | None) -> Job:
        said = merge(merge(self.settings, variant.settings), {"method": variant.method})
        label = {"label": variant.label} if variant.named else {}
        config = build_config(self.benchmark, {**said, **label, "seed": seed})
        return Job(divided(config, jobs=side_by_side, said=said.get("threads")), variant.label)


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
            f"--seeds {text!r} names no seed: say how many, from 1 on, or which, from 0 on"
        )
    return tuple(dict.fromkeys(seeds))


def pick_names(text: str, known: Sequence[str] = ()) -> list[str]:
    """Names with commas between them; a known name may have commas itself, the longest wins.

    >>> pick_names("finetune, plain,rate 1e-3 ,gem", ["plain, rate 1e-3"])
    ['finetune', 'plain, rate 1e-3', 'gem']
    """
    whole = {_parts(name): name for name in known}
    parts, names = _parts(text), list[str]()
    while parts:
        longest = next((n for n in range(len(parts), 0, -1) if parts[:n] in whole), 1)
        names.append(whole.get(parts[:longest], parts[0]))
        parts = parts[longest:]
    return list(dict.fromkeys(names))


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def choose_methods(
    said: str | Sequence[str], benchmark: str, *, scenario: str | None = None
) -> tuple[list[str], list[str]]:
    """Method names, and those that "all" leaves out because the stream is not for them."""
    names = pick_names(said) if isinstance(said, str) else said
    if list(names) != ["all"]:
        if not names:
            raise ConfigError("no method is named: say all, or a,b,c")
        if "all" in names:
            raise ConfigError("all is every method there is: say all alone, or a,b,c")
        return [method_info(name).name for name in dict.fromkeys(names)], []
    kind = scenario or find_benchmark(benchmark).scenario
    fit = [name for name in METHODS if kind in load_method(name).scenarios]
    return fit, [name for name in METHODS if name not in fit]


def variant(method: str, point: Mapping[str, Any]) -> Variant:
    """A variant from dotted option names and their values."""
    settings: dict[str, Any] = {}
    for name, value in point.items():
        instead = NOT_VARIED.get(name.replace("-", "_"))
        if instead:
            raise ConfigError(f"{name!r} is not varied like an option: use {instead}")
        settings = merge(settings, nested(name, value))
    told = " ".join(f"{name.split('.')[-1]}={_told(value)}" for name, value in point.items())
    return Variant(f"{method} {told}".strip(), method, settings)


def nested(name: str, value: Any) -> dict[str, Any]:
    """Turn a dotted name into nested settings; ``method.a`` is an option of the method.

    >>> nested("method.a", 10), nested("optim.lr", 0.1)
    ({'options': {'a': 10}}, {'optim': {'lr': 0.1}})
    """
    parts = name.replace("-", "_").split(".")
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
        raise ConfigError(f"--set wants name=value,value such as method.a=10,20; not {text!r}")
    try:
        found = json.loads(f"[{values}]")
    except ValueError:
        found = [part.strip() for part in values.split(",") if part.strip()]
    return name.strip(), found


def check_data(benchmark: str, data_dir: Path | None) -> None:
    """Say once, before any process starts, that data are missing or broken."""
    from nscl.data.catalogue import FOLDER_PREFIX, find_dataset
    from nscl.data.locate import require

    if not benchmark.startswith(FOLDER_PREFIX) and find_dataset(benchmark).forms:
        require(find_dataset(benchmark), benchmark, data_dir)


def _told(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
