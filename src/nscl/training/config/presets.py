"""Named protocols: two published ones, one at half their size, and those of small machines.

A preset has general values, which depend on the benchmark and stand here, and values of single
methods, which stand beside the methods in ``nscl/methods/presets/NAME.toml``. Tuned values that the
package ships come last. General values are the paper's for ``paper`` and those of the authors'
script and logs for ``official`` (docs/methods.md, "Notation and protocol").
"""

import tomllib
from collections.abc import Callable
from functools import cache
from importlib.resources import files

from nscl.data.catalogue import has_texts
from nscl.messages import did_you_mean
from nscl.methods.registry import METHODS
from nscl.training.config.layers import Settings, merge
from nscl.training.config.schema import ConfigError
from nscl.training.config.tuned_values import tuned_settings

_PUBLISHED = {"epochs": 80, "milestones": (30, 60), "gamma": 0.5, "name": "adam"}
_BATCH_SIZE = {"split-cifar100-10": 32}
# Sections of a method's file that hold for a preset, weakest first.
_SECTIONS = {
    "paper": ("all", "published", "paper"),
    "official": ("all", "published", "official"),
    "half": ("all", "published", "official", "half"),
    "cpu-2": ("all", "cpu", "cpu-2"),
    "cpu-1": ("all", "cpu"),
    "quick": ("all", "quick"),
}


_TEXT_CPU: Settings = {  # what fine-tunes a pretrained encoder of 22 million parameters
    "model": {"name": "minilm"},
    "optim": {"name": "adam", "lr": 2e-4, "head_lr": 2e-3, "epochs": 2, "batch_size": 32,
              "milestones": (1,), "gamma": 0.25},
    "threads": 1,
}  # fmt: skip
_TEXT_QUICK: Settings = {
    "model": {"name": "tiny-transformer", "width": 64},
    "optim": {"name": "adam", "lr": 2e-3, "epochs": 4, "batch_size": 32},
    "threads": 1,
}


def paper(benchmark: str) -> Settings:
    """As printed: one rate of 5e-5, halved at epochs 30 and 60 of 80; plain projector."""
    return {
        "model": {"name": "resnet18", "width": 64},
        "optim": {**_PUBLISHED, "lr": 5e-5, "batch_size": _BATCH_SIZE.get(benchmark, 16)},
    }


def official(benchmark: str) -> Settings:
    """As the authors' code runs: three rates, weight decay, and what it does unlike the paper."""
    is_tiny = benchmark.startswith("split-tinyimagenet")
    return {
        "model": {"name": "resnet18", "width": 64},
        "optim": {
            **_PUBLISHED,
            "lr": 5e-5 if is_tiny else 1e-4,
            "later_lr": 5e-5,
            "head_lr": 1e-3,
            "norm_lr": 5e-4,
            "weight_decay": 5e-5,
            "batch_size": _BATCH_SIZE.get(benchmark, 16),
        },
        "eval_each_epoch": True,
    }


def half(benchmark: str) -> Settings:
    """As `official` at half the width, in 16 epochs with milestones in the same proportion."""
    whole = official(benchmark)
    return {
        "model": {"name": "resnet18", "width": 32, "memory_format": "channels_last"},
        "optim": {**whole["optim"], "epochs": 16, "milestones": (6, 12)},
    }


def cpu_2(benchmark: str) -> Settings:
    """Also called cpu: ResNet-18 of width 16 on quartered maps, 50 epochs and then 8."""
    return {
        "model": {
            "name": "resnet18",
            "width": 16,
            "stem_stride": 2,
            "memory_format": "channels_last",
        },
        "optim": {
            "name": "adam",
            "lr": 1e-3,
            "first_epochs": 50,
            "epochs": 8,
            "batch_size": 32,
            "milestones": (5, 7),
            "gamma": 0.3,
        },
        "threads": 1,  # two runs side by side are faster than one on two cores
    }


def cpu_1(benchmark: str) -> Settings:
    """The first version of cpu: ResNet-18 of width 8, four epochs; MiniLM for texts."""
    if has_texts(benchmark):
        return _TEXT_CPU
    return {
        "model": {"name": "resnet18", "width": 8, "memory_format": "channels_last"},
        "optim": {"name": "adam", "lr": 2e-3, "epochs": 4, "batch_size": 32, "milestones": (2, 3)},
        "threads": 1,  # two runs side by side are faster than one on two cores
    }


def quick(benchmark: str) -> Settings:
    """Seconds: for tests and the demo."""
    if has_texts(benchmark):
        return _TEXT_QUICK
    return {
        "model": {"name": "mlp" if "digits" in benchmark else "convnet", "width": 64},
        "optim": {"name": "adam", "lr": 1e-2, "epochs": 10, "batch_size": 16},
        "threads": 1,  # steps of a few milliseconds: a second thread costs more than it gives
    }


PRESETS: dict[str, Callable[[str], Settings]] = {
    "paper": paper,
    "official": official,
    "half": half,
    "cpu-2": cpu_2,
    "cpu-1": cpu_1,
    "quick": quick,
}


def newest(name: str, benchmark: str) -> str:
    """The preset that a name means: ``cpu`` is its newest version; texts have the first one only.

    >>> newest("cpu", "split-cifar100-10"), newest("cpu", "clinc150-10"), newest("quick", "x")
    ('cpu-2', 'cpu-1', 'quick')
    >>> newest("quik", "split-digits-5")
    Traceback (most recent call last):
    nscl.training.config.errors.ConfigError: there is no preset 'quik' (did you mean 'quick'?)
    """
    if name in ("cpu", "cpu-2"):
        return "cpu-1" if has_texts(benchmark) else "cpu-2"
    if name not in PRESETS:
        known = ["cpu", *PRESETS]
        hint = did_you_mean(name, known, otherwise=f"; known: {', '.join(known)}")
        raise ConfigError(f"there is no preset {name!r}{hint}")
    return name


def preset(name: str, benchmark: str, method: str) -> Settings:
    """The settings of a preset for a benchmark and a method.

    >>> preset("quick", "split-digits-5", "adam-nscl")["options"]
    {'a': 1000.0}
    """
    name = newest(name, benchmark)
    general = {**PRESETS[name](benchmark), "options": {}}
    settings = merge(general, method_settings(name, benchmark, method))
    return merge(settings, tuned_settings(benchmark, name, method))


def method_settings(name: str, benchmark: str, method: str) -> Settings:
    """What a method changes in a preset, from its file; a method without a file changes nothing."""
    name = newest(name, benchmark)
    content = _read(method)
    parent = content.get("extends")
    settings = method_settings(name, benchmark, parent) if parent else {}
    for section in _SECTIONS[name]:
        general = dict(content.get(section, {}))
        special = general.pop("on", {}).get(benchmark, {})
        settings = merge(merge(settings, general), special)
    return settings


@cache
def _read(method: str) -> Settings:
    file = files("nscl.methods.presets").joinpath(f"{method}.toml")
    if method not in METHODS or not file.is_file():  # somebody's own class has no file here
        return {}
    return tomllib.loads(file.read_text(encoding="utf-8"))


def default_preset(benchmark: str) -> str:
    """The paper's own benchmarks are run as in the paper unless asked otherwise."""
    paper_benchmarks = ("split-cifar100-10", "split-cifar100-20", "split-tinyimagenet-25")
    return "paper" if benchmark in paper_benchmarks else "quick"
