"""Train a network on something new, without forgetting the old and without the old data.

>>> import nscl
>>> memory = nscl.Memory(model)              # doctest: +SKIP
>>> memory.protect(optimizer)                # doctest: +SKIP
>>> memory.remember(old_data)                # doctest: +SKIP

Names are imported when they are first used: ``nscl --help`` and reports need no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from nscl._version import __version__
from nscl.errors import NsclError, NsclWarning

if TYPE_CHECKING:
    from nscl import integrations as integrations
    from nscl.core.checks.estimate import Estimate as Estimate
    from nscl.core.distillation import distillation as distillation
    from nscl.core.memory import Memory as Memory
    from nscl.core.model.elementwise import register_norm as register_norm
    from nscl.core.model.layer_types import register_layer as register_layer
    from nscl.core.projection.rules import Budget as Budget
    from nscl.core.projection.rules import Energy as Energy
    from nscl.core.projection.rules import Penalty as Penalty
    from nscl.core.projection.rules import Ratio as Ratio
    from nscl.core.projection.rules import Ridge as Ridge
    from nscl.core.projection.rules import Tolerance as Tolerance
    from nscl.core.protection.step_hooks import Protection as Protection
    from nscl.core.report import Forgetting as Forgetting
    from nscl.core.report import Report as Report
    from nscl.results import Result as Result
    from nscl.training.config.build import build_config as build_config
    from nscl.training.config.schema import RunConfig as RunConfig
    from nscl.training.experiment import run as run

_HOME = {
    "Budget": "nscl.core.projection.rules",
    "Energy": "nscl.core.projection.rules",
    "Estimate": "nscl.core.checks.estimate",
    "Forgetting": "nscl.core.report",
    "Memory": "nscl.core.memory",
    "Penalty": "nscl.core.projection.rules",
    "Protection": "nscl.core.protection.step_hooks",
    "Ratio": "nscl.core.projection.rules",
    "Report": "nscl.core.report",
    "Result": "nscl.results",
    "Ridge": "nscl.core.projection.rules",
    "RunConfig": "nscl.training.config.schema",
    "Tolerance": "nscl.core.projection.rules",
    "build_config": "nscl.training.config.build",
    "distillation": "nscl.core.distillation",
    "register_layer": "nscl.core.model.layer_types",
    "register_norm": "nscl.core.model.elementwise",
    "run": "nscl.training.experiment",
}

__all__ = [
    "Budget",
    "Energy",
    "Estimate",
    "Forgetting",
    "Memory",
    "NsclError",
    "NsclWarning",
    "Penalty",
    "Protection",
    "Ratio",
    "Report",
    "Result",
    "Ridge",
    "RunConfig",
    "Tolerance",
    "__version__",
    "build_config",
    "distillation",
    "integrations",
    "register_layer",
    "register_norm",
    "run",
]


def __getattr__(name: str) -> Any:
    if name == "integrations":
        return importlib.import_module("nscl.integrations")
    if name not in _HOME:
        raise AttributeError(f"module 'nscl' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
