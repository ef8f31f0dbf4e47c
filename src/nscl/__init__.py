"""Train a network on something new, without forgetting the old and without the old data.

>>> import nscl
>>> memory = nscl.Memory(model)              # doctest: +SKIP
>>> memory.protect(optimizer)                # doctest: +SKIP
>>> memory.remember(old_data)                # doctest: +SKIP
"""

from nscl._version import __version__
from nscl.core.layers import register_layer
from nscl.core.memory import Memory
from nscl.core.protection import Protection
from nscl.core.report import Forgetting, Report
from nscl.core.rules import Energy, Ratio, Ridge, Tolerance
from nscl.errors import NsclError, NsclWarning

__all__ = [
    "Energy",
    "Forgetting",
    "Memory",
    "NsclError",
    "NsclWarning",
    "Protection",
    "Ratio",
    "Report",
    "Ridge",
    "Tolerance",
    "__version__",
    "register_layer",
]
