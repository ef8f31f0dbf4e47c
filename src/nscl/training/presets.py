"""Named protocols: every value of METHODS §1.5, and two that small machines finish.

A preset is a function of benchmark and method to a nested dictionary of settings, as data. Values
are the authors' (script and logs) for ``official``, the paper's text for ``paper``.
"""

from collections.abc import Callable
from typing import Any

Settings = dict[str, Any]

_PAPER = {
    "epochs": 80,
    "milestones": (30, 60),
    "gamma": 0.5,
    "name": "adam",
}
_BATCH = {"split-cifar100-10": 32}
_RATIO = {"split-cifar100-20": 30.0}
# Kept images per class of the replay methods: 250 per task, the same for all (METHODS §13).
_PER_CLASS = {"split-cifar100-20": 50}
_REPLAY = ("gem", "a-gem", "mega")


def paper(benchmark: str, method: str) -> Settings:
    """As printed: one rate of 5e-5, halved at epochs 30 and 60 of 80; plain projector."""
    return {
        "model": {"name": "resnet18", "width": 64},
        "optim": {**_PAPER, "lr": 5e-5, "batch_size": _BATCH.get(benchmark, 16)},
        "options": _nscl(method, a=_RATIO.get(benchmark, 10.0), features="per_sample"),
    }


def official(benchmark: str, method: str) -> Settings:
    """As the authors' code runs: three rates, weight decay, batch means, Frobenius scaling."""
    tiny = benchmark.startswith("split-tinyimagenet")
    return {
        "model": {"name": "resnet18", "width": 64},
        "optim": {
            **_PAPER,
            "lr": 5e-5 if tiny else 1e-4,
            "later_lr": 5e-5,
            "head_lr": 1e-3,
            "norm_lr": 5e-4,
            "weight_decay": 5e-5,
            "batch_size": _BATCH.get(benchmark, 16),
        },
        "options": _nscl(
            method, a=_RATIO.get(benchmark, 10.0), features="batch_mean", scale="frobenius"
        ),
        "eval_each_epoch": True,
    }


def cpu(benchmark: str, method: str) -> Settings:
    """A protocol that one core finishes in minutes: reduced ResNet-18, few epochs."""
    return {
        "model": {"name": "resnet18", "width": 16, "memory_format": "channels_last"},
        "optim": {"name": "adam", "lr": 1e-3, "epochs": 5, "batch_size": 32, "milestones": (3, 4)},
        "options": _nscl(method, a=10.0),
    }


def quick(benchmark: str, method: str) -> Settings:
    """Seconds: for tests and the demo."""
    return {
        "model": {"name": "mlp" if "digits" in benchmark else "convnet", "width": 64},
        "optim": {"name": "adam", "lr": 1e-2, "epochs": 10, "batch_size": 16},
        "threads": 1,  # steps of a few milliseconds: a second thread costs more than it gives
        "options": _nscl(method, a=1000.0),
    }


def _nscl(method: str, **options: Any) -> Settings:
    """Options that belong to Adam-NSCL only."""
    return options if method == "adam-nscl" else {}


PRESETS: dict[str, Callable[[str, str], Settings]] = {
    "paper": paper,
    "official": official,
    "cpu": cpu,
    "quick": quick,
}


def preset(name: str, benchmark: str, method: str) -> Settings:
    """The settings of a preset for a benchmark and a method."""
    settings = PRESETS[name](benchmark, method)
    if method in _REPLAY and benchmark in _PER_CLASS:
        settings["options"] = {"per_class": _PER_CLASS[benchmark], **settings["options"]}
    return settings


def default_preset(benchmark: str) -> str:
    """The paper's own benchmarks are run as in the paper unless asked otherwise."""
    paper_benchmarks = ("split-cifar100-10", "split-cifar100-20", "split-tinyimagenet-25")
    return "paper" if benchmark in paper_benchmarks else "quick"
