"""Named protocols: every value of METHODS §1.5, and two that small machines finish.

A preset is a function of benchmark and method to a nested dictionary of settings, as data. Values
are the authors' (script and logs) for ``official``, the paper's text for ``paper``.
"""

from collections.abc import Callable
from typing import Any

from nscl.training.config import merge
from nscl.training.tuned_values import tuned_settings

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
# AdNS, from its authors' repository: options, and rates that differ from Adam-NSCL's.
_ADNS: dict[str, tuple[Settings, Settings]] = {
    "split-cifar100-10": (
        {"a_core": 160.0, "a_end": 150.0, "kl_coef": 0.5, "head_epochs": 10},
        {"lr": 2e-4, "later_lr": 1e-4, "head_lr": 2e-3, "norm_lr": 1e-3},
    ),
    "split-cifar100-20": (
        {"a_core": 180.0, "a_end": 150.0, "kl_coef": 1.0, "head_epochs": 15},
        {"lr": 1e-4, "later_lr": 5e-5, "head_lr": 1e-3, "norm_lr": 5e-4},
    ),
    "split-tinyimagenet-25": (
        {"a_core": 20.0, "a_end": 5.0, "kl_coef": 0.8, "head_epochs": 15},
        {"lr": 1e-4, "later_lr": 1e-4, "head_lr": 2e-3, "norm_lr": 1e-3},
    ),
}
# Batch means, a projector divided by its norm, a float32 decomposition (METHODS §2.5).
_RELEASED: Settings = {"features": "batch_mean", "scale": "frobenius", "literal": True}
# What methods without a published protocol need at full size (METHODS §5–§8, §16): importances of
# all images; SI's damping as its authors had it on CIFAR, small beside squared movements under Adam
# at 1e-4; and so many images for bases that patches (16 of an image in the last stage, 32 × 32)
# outnumber its 4,608 features.
_FULL_SIZE: dict[str, Settings] = {
    "ewc": {"samples": None},
    "mas": {"samples": None},
    "muc-mas": {"samples": None},
    "si": {"xi": 1e-3},
    "gpm": {"samples": 400},
    "sgp": {"samples": 400},
}
# An external pool of a size that the digits' seconds allow.
_QUICK: dict[str, Settings] = {
    "muc-mas": {"pool_size": 2000},
    "gd-wild": {"pool_size": 2000, "budget": 100},
    # Answers on the digits are right whatever is active; paid for idle branches, none would be.
    "instaparam": {"kernels": (5, 3, 1), "exponent": 0.0, "ewc": 1e4},
}
# Steps of a few times the plain network's cost; the published sizes take four for InstAParam.
# Beside a batch of 32, A-GEM and MEGA would pass 256 old images at every step, GEM up to 2,250.
_CPU: dict[str, Settings] = {
    "instaparam": {"kernels": (5, 3, 1), "controller_side": 16},
    "gem": {"per_class": 5},
    "a-gem": {"per_class": 5, "reference_batch": 64},
    "mega": {"per_class": 5, "reference_batch": 64},
    # Five epochs of warm-up beside 80 are few; beside 4 they would be most of the training.
    "lwf": {"warmup_epochs": 1},
}
# Where a_core is tuned, a_end follows. The teacher takes the published way, ten epochs at 2e-3, in
# a fifth of the epochs at five times the rate.
_CPU_ADNS: Settings = {"a_end": None, "head_epochs": 2, "head_rate": 1e-2}


def paper(benchmark: str, method: str) -> Settings:
    """As printed: one rate of 5e-5, halved at epochs 30 and 60 of 80; plain projector."""
    return {
        "model": {"name": "resnet18", "width": 64},
        "optim": {
            **_PAPER,
            "lr": 5e-5,
            "batch_size": _BATCH.get(benchmark, 16),
            **_adns(method, benchmark)[1],
        },
        "options": _nscl(method, a=_RATIO.get(benchmark, 10.0), features="per_sample")
        | _adns(method, benchmark)[0]
        | _FULL_SIZE.get(method, {}),
    }


def official(benchmark: str, method: str) -> Settings:
    """As the authors' code runs: three rates, weight decay, and what it does unlike the paper."""
    tiny = benchmark.startswith("split-tinyimagenet")
    return {
        "model": {"name": "resnet18", "width": 64},
        "optim": {
            **_PAPER,
            "lr": 5e-5 if tiny else 1e-4,
            "later_lr": 5e-5,
            "head_lr": 1e-3,
            "norm_lr": 5e-4,
            # SI takes every movement for the loss's doing: decay would count as importance.
            "weight_decay": 0.0 if method == "si" else 5e-5,
            "batch_size": _BATCH.get(benchmark, 16),
            **_adns(method, benchmark)[1],
        },
        "options": _nscl(method, a=_RATIO.get(benchmark, 10.0), **_RELEASED)
        | _adns(method, benchmark, **_RELEASED)[0]
        | _FULL_SIZE.get(method, {}),
        "eval_each_epoch": True,
    }


def cpu(benchmark: str, method: str) -> Settings:
    """A protocol that one core finishes in minutes: reduced ResNet-18, few epochs."""
    return {
        "model": {"name": "resnet18", "width": 8, "memory_format": "channels_last"},
        "optim": {"name": "adam", "lr": 2e-3, "epochs": 4, "batch_size": 32, "milestones": (2, 3)},
        "threads": 1,  # two such runs side by side are faster than one on two cores
        "options": _nscl(method, a=10.0)
        | _adns(method, benchmark, **_CPU_ADNS)[0]
        | _CPU.get(method, {}),
    }


def quick(benchmark: str, method: str) -> Settings:
    """Seconds: for tests and the demo."""
    return {
        "model": _quick_model(benchmark, method),
        "optim": {"name": "adam", "lr": 1e-2, "epochs": 10, "batch_size": 16},
        "threads": 1,  # steps of a few milliseconds: a second thread costs more than it gives
        "options": _nscl(method, a=1000.0)
        | _adns(method, benchmark, a_core=1000.0, a_end=None)[0]
        | _QUICK.get(method, {}),
    }


def _quick_model(benchmark: str, method: str) -> Settings:
    """InstAParam's super kernels need convolutions, and are several of them: a narrower network."""
    if method == "instaparam":
        return {"name": "convnet", "width": 16}
    return {"name": "mlp" if "digits" in benchmark else "convnet", "width": 64}


def _nscl(method: str, **options: Any) -> Settings:
    """Options that belong to Adam-NSCL, and to the method built on it, only."""
    return options if method in ("adam-nscl", "connector") else {}


def _adns(method: str, benchmark: str, **options: Any) -> tuple[Settings, Settings]:
    """Options that belong to AdNS only, and its rates."""
    if method != "adns":
        return {}, {}
    published, rates = _ADNS.get(benchmark, ({}, {}))
    return {**published, **options}, rates


PRESETS: dict[str, Callable[[str, str], Settings]] = {
    "paper": paper,
    "official": official,
    "cpu": cpu,
    "quick": quick,
}


def preset(name: str, benchmark: str, method: str) -> Settings:
    """The settings of a preset for a benchmark and a method."""
    settings = merge(PRESETS[name](benchmark, method), tuned_settings(benchmark, name, method))
    if method in _REPLAY and benchmark in _PER_CLASS:
        settings["options"] = {"per_class": _PER_CLASS[benchmark], **settings["options"]}
    return settings


def default_preset(benchmark: str) -> str:
    """The paper's own benchmarks are run as in the paper unless asked otherwise."""
    paper_benchmarks = ("split-cifar100-10", "split-cifar100-20", "split-tinyimagenet-25")
    return "paper" if benchmark in paper_benchmarks else "quick"
