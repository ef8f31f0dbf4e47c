"""Import the method that ``package.module:Class`` names, or report in one line what is missing."""

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import get_args

from nscl.errors import NsclError
from nscl.messages import did_you_mean, one_line
from nscl.methods.base import Method
from nscl.methods.registry import Stores


def import_method(target: str) -> type[Method]:
    """Import a subclass of ``Method``.

    >>> import_method("nscl.methods.baselines.finetune:Finetune").__name__
    'Finetune'
    """
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise NsclError(f"{target!r} is not a method: write package.module:Class")
    module = _module(module_name, target)
    if not hasattr(module, attribute):
        known = [name for name, value in vars(module).items() if _is_method(value)]
        hint = did_you_mean(attribute, known) or f"; it has {', '.join(known) or 'no method'}"
        raise NsclError(f"there is no {attribute!r} in {_place(module)}{hint}")
    found = getattr(module, attribute)
    if not _is_method(found):
        raise NsclError(
            f"{attribute!r} in {_place(module)} is not a method: it must be a class that derives "
            "from nscl.methods.Method"
        )
    method: type[Method] = found
    if method.stores not in get_args(Stores):
        raise NsclError(
            f"{attribute} in {_place(module)}: stores is {method.stores!r}, but must be one of "
            f"{', '.join(get_args(Stores))}"
        )
    return method


def _module(name: str, target: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise NsclError(f"cannot import {name!r} of {target!r}: {one_line(error)}") from error
        here = [module.name for module in pkgutil.iter_modules([str(Path.cwd())])]
        raise NsclError(
            f"there is no module {error.name!r} for the method {target!r}"
            f"{did_you_mean(error.name, here)}: run nscl in the folder it lies in, or install it"
        ) from error
    except Exception as error:  # whatever a user's own file raises on import
        raise NsclError(f"cannot import {name!r} of {target!r}: {one_line(error)}") from error


def _is_method(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Method)


def _place(module: ModuleType) -> str:
    return str(getattr(module, "__file__", None) or module.__name__)
