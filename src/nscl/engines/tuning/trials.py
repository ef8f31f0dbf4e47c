"""The trials of a tuning: what varies, on which stream, and what is scored.

Trials see the first five tasks of another, random class order, so that nothing is chosen on the
stream that is reported, and are scored on a tenth of the training data that is held out, so that
test data are never looked at. The rate of later tasks varies for every method that has one; a
method declares which one or two of its options are its strength.
"""

from collections.abc import Mapping
from typing import Any

from nscl.data.catalogue import find_benchmark
from nscl.engines.job import Job
from nscl.engines.plan import RunPlan, make_variant, nested
from nscl.engines.tuning.search import Axis
from nscl.errors import NsclError
from nscl.methods.registry import load_method
from nscl.training.config.build import build_config
from nscl.training.config.layers import Settings, merge
from nscl.training.config.schema import ConfigError, RunConfig

TRIALS = 7  # with the first seed; the two best are then repeated with the second
SEEDS = (0, 1)
TASKS = 5
HOLDOUT = 0.1
ORDER = {"order": "random", "order_seed": 1}
RATE = "optim.later_lr"
SHARES = (0.1, 0.32, 1.0)  # of the first task's rate


def axes_of(method: str, benchmark: str, given: Mapping[str, Any], *, trials: int) -> list[Axis]:
    """What varies: the rate of later tasks where it is not given, then each strength.

    >>> [axis.name for axis in axes_of("lwf", "split-digits-5", {}, trials=7)]
    ['optim.later_lr', 'strength']
    """
    kind = load_method(method)
    config = build_config(benchmark, {**given, "method": method})
    options = given.get("options") or {}
    declared = kind.strengths(kind.options_type.model_validate(config.options))
    _check_not_given({name: v for name, v in options.items() if name in declared})
    if not declared and kind.tuning:
        raise NsclError(f"{method} has no strength to tune with {typed(options)}: leave it out")
    axes = [Axis(name, tuple(values)) for name, values in declared.items()]
    if kind.tunes_rate and RATE.split(".")[1] not in (given.get("optim") or {}):
        axes.insert(0, rate_axis(config, trials))
    if not axes:
        raise NsclError(f"method {method!r} declares no strength: there is nothing to tune")
    return axes


def rate_axis(config: RunConfig, trials: int) -> Axis:
    """The first task's rate and shares of it: three, or two where there are few trials."""
    shares = SHARES if trials >= 6 else SHARES[1:] if trials >= 4 else SHARES[2:]
    return Axis(RATE, tuple(float(f"{s * config.optim.lr:.3g}") for s in shares), is_rate=True)


def _check_not_given(options: Settings) -> None:
    if options:
        raise NsclError(f"{typed(options)}: that is what tune varies; leave it out")


def typed(options: Settings) -> str:
    """Options as they are typed."""
    return " ".join(f"--method.{name} {value}" for name, value in options.items())


def option_path(name: str) -> str:
    """A declared name as it is typed: an option of the method unless it says otherwise.

    >>> option_path("a"), option_path("optim.lr")
    ('method.a', 'optim.lr')
    """
    return name if "." in name else f"method.{name}"


def tuning_settings(benchmark: str, given: Mapping[str, Any]) -> Settings:
    """The settings of all trials: the first tasks of another class order, data held out."""
    data = given.get("data", {})
    if data.get("order") == "natural":
        raise ConfigError(
            "--data.order natural would choose on the classes that are reported: leave it "
            "out (tuning takes a random order), or choose another one with --data.order-seed"
        )
    asked = data.get("tasks") or find_benchmark(benchmark).tasks or TASKS
    return merge({"data": {**ORDER, "first": min(TASKS, asked), "holdout": HOLDOUT}}, given)


def job_of(
    method: str,
    benchmark: str,
    values: Mapping[str, float],
    settings: Settings,
    *,
    seed: int,
    side_by_side: int | None,
) -> Job:
    """The run of one trial."""
    variant = make_variant(method, {option_path(name): v for name, v in values.items()})
    plan = RunPlan(benchmark, (variant,), (seed,), settings)
    return plan.jobs(side_by_side=side_by_side)[0]


def chosen_settings(point: Mapping[str, float]) -> dict[str, Any]:
    """A point as settings of a preset."""
    settings: dict[str, Any] = {}
    for name, value in point.items():
        settings = merge(settings, nested(option_path(name), value))
    return settings
