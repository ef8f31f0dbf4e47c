"""The trials of a tuning: the same small budget for every method, on another class order.

Trials see the first three tasks of another, random class order, so that nothing is chosen on the
stream that is reported. A method declares which one or two options are its strength. Its grid is
thinned evenly to the budget.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from nscl.data.catalogue import find_benchmark
from nscl.engines.plan import RunPlan, Variant, make_variant, nested
from nscl.methods.registry import load_method
from nscl.training.config.layers import Settings, merge
from nscl.training.config.schema import ConfigError

TRIALS = 3  # every method declares at least three values
TASKS = 3
ORDER = {"order": "random", "order_seed": 1}


def points(
    method: str, *, trials: int = TRIALS, options: Settings | None = None
) -> list[dict[str, float]]:
    """The values to try, by option: every combination of the thinned grid.

    ``options`` hold for all trials; they decide which strengths count.

    >>> points("gpm")[0]
    {'threshold': 0.9}
    >>> points("finetune")
    []
    """
    kind = load_method(method)
    declared = kind.strengths(kind.options_type.model_validate(options or {}))
    if not declared:
        return []
    sizes = best_sizes([len(values) for values in declared.values()], trials)
    axes = [thin(values, n) for values, n in zip(declared.values(), sizes, strict=True)]
    return [dict(zip(declared, values, strict=True)) for values in product(*axes)]


def thin(values: Sequence[float], count: int) -> list[float]:
    """``count`` of the values, evenly spread, both ends among them.

    >>> thin([1, 2, 3, 4, 5], 3), thin([1, 2, 3], 1)
    ([1, 3, 5], [2])
    """
    last = len(values) - 1
    if count == 1:
        return [values[last // 2]]
    return [values[(2 * i * last + count - 1) // (2 * (count - 1))] for i in range(count)]


def best_sizes(sizes: Sequence[int], budget: int) -> tuple[int, ...]:
    """How many values of each option: as many trials as allowed, then as balanced as possible.

    >>> best_sizes([5], 6), best_sizes([3, 4], 6), best_sizes([5, 2], 6)
    ((5,), (2, 3), (3, 2))
    """
    fitting = [
        n
        for n in product(*(range(1, size + 1) for size in sizes))
        if math.prod(n) <= max(1, budget)
    ]
    return max(
        fitting, key=lambda n: (math.prod(n), min(a / b for a, b in zip(n, sizes, strict=True)))
    )


@dataclass(frozen=True)
class TuningTrial:
    """One point of a method's grid."""

    point: Mapping[str, float]
    variant: Variant


def trials_of(
    method: str, *, trials: int = TRIALS, options: Settings | None = None
) -> list[TuningTrial]:
    """The trials of a method; none where it declares no strength."""
    return [
        TuningTrial(
            point, make_variant(method, {option_path(name): v for name, v in point.items()})
        )
        for point in points(method, trials=trials, options=options)
    ]


def option_path(name: str) -> str:
    """A declared name as it is typed: options of the method unless it says otherwise.

    >>> option_path("a"), option_path("optim.lr")
    ('method.a', 'optim.lr')
    """
    return name if "." in name else f"method.{name}"


def tuning_plan(
    benchmark: str, trials: Sequence[TuningTrial], given: Mapping[str, Any], *, seed: int = 0
) -> RunPlan:
    """The trials as runs: the first tasks of a different class order."""
    data = given.get("data", {})
    if data.get("order") == "natural":
        raise ConfigError(
            "--data.order natural would choose on the classes that are reported: leave it "
            "out (tuning takes a random order), or choose another one with --data.order-seed"
        )
    asked = data.get("tasks") or find_benchmark(benchmark).tasks or TASKS
    settings = merge({"data": {**ORDER, "first": min(TASKS, asked)}}, given)
    return RunPlan(benchmark, tuple(trial.variant for trial in trials), (seed,), settings)


def chosen_settings(point: Mapping[str, float]) -> dict[str, Any]:
    """A point as settings of a preset."""
    settings: dict[str, Any] = {}
    for name, value in point.items():
        settings = merge(settings, nested(option_path(name), value))
    return settings
