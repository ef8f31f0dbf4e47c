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
    from nscl.core.distillation import distillation as distillation
    from nscl.core.layers import register_layer as register_layer
    from nscl.core.memory import Memory as Memory
    from nscl.core.protection import Protection as Protection
    from nscl.core.report import Forgetting as Forgetting
    from nscl.core.report import Report as Report
    from nscl.core.rules import Budget as Budget
    from nscl.core.rules import Energy as Energy
    from nscl.core.rules import Penalty as Penalty
    from nscl.core.rules import Ratio as Ratio
    from nscl.core.rules import Ridge as Ridge
    from nscl.core.rules import Tolerance as Tolerance
    from nscl.results import Result as Result
    from nscl.training.config import RunConfig as RunConfig
    from nscl.training.experiment import run as run
    from nscl.training.prepare import build_config as build_config

_HOME = {
    "Budget": "nscl.core.rules",
    "Energy": "nscl.core.rules",
    "Forgetting": "nscl.core.report",
    "Memory": "nscl.core.memory",
    "Penalty": "nscl.core.rules",
    "Protection": "nscl.core.protection",
    "Ratio": "nscl.core.rules",
    "Report": "nscl.core.report",
    "Result": "nscl.results",
    "Ridge": "nscl.core.rules",
    "RunConfig": "nscl.training.config",
    "Tolerance": "nscl.core.rules",
    "build_config": "nscl.training.prepare",
    "distillation": "nscl.core.distillation",
    "register_layer": "nscl.core.layers",
    "run": "nscl.training.experiment",
}

__all__ = [
    "Budget",
    "Energy",
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
    "register_layer",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'nscl' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
