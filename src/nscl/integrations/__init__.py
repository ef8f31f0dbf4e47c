"""nscl inside of other libraries: one module for each, imported only when it is asked for.

>>> import nscl
>>> trainer = Trainer(..., callbacks=[nscl.integrations.transformers.KeepMemory(memory)])
... # doctest: +SKIP
>>> nscl.integrations.peft.prepare(peft_model, memory)  # doctest: +SKIP
"""

import importlib
from typing import Any

__all__ = ["avalanche", "lightning", "peft", "resumable", "transformers"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'nscl.integrations' has no attribute {name!r}")
    return importlib.import_module(f"nscl.integrations.{name}")


def __dir__() -> list[str]:
    return sorted(__all__)
