"""Continual-learning methods on one interface; listing them needs no torch.

``base`` is the interface, ``registry`` the list. Folders hold methods of one kind: ``baselines``,
``projection``, ``regularization``, ``replay``, ``distillation``, ``instaparam``. A method's values
in presets stand in ``presets``. To add a method, see docs/own-method.md.
"""

import importlib
from typing import TYPE_CHECKING, Any

from nscl.methods.registry import METHODS, MethodInfo, load_method, method_info

if TYPE_CHECKING:
    from nscl.methods.base import Batch as Batch
    from nscl.methods.base import Lab as Lab
    from nscl.methods.base import Method as Method
    from nscl.methods.base import Options as Options
    from nscl.methods.base import Outcome as Outcome
    from nscl.methods.base import Phase as Phase

_INTERFACE = ("Batch", "Lab", "Method", "Options", "Outcome", "Phase")

__all__ = [
    "METHODS",
    "Batch",
    "Lab",
    "Method",
    "MethodInfo",
    "Options",
    "Outcome",
    "Phase",
    "load_method",
    "method_info",
]


def __getattr__(name: str) -> Any:
    if name not in _INTERFACE:
        raise AttributeError(f"module 'nscl.methods' has no attribute {name!r}")
    return getattr(importlib.import_module("nscl.methods.base"), name)
