"""Backbones given as ``package.module:factory``: imported, called and checked."""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nscl.errors import NsclError
from nscl.messages import did_you_mean, one_line
from nscl.models.errors import ModelError

if TYPE_CHECKING:
    from torch import nn


def load_factory(path: str) -> Callable[..., Any]:
    """Import the callable that ``package.module:factory`` names."""
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise ModelError(f"{path!r} does not name a model: write package.module:factory")
    try:
        found: object = importlib.import_module(module_name)
    except Exception as error:
        raise ModelError(
            f"cannot import {module_name!r} for the model {path!r}: {one_line(error)}"
        ) from error
    for part in attribute.split("."):
        found = _attribute(found, part, path)
    if not callable(found):
        raise ModelError(f"{path!r} is a {type(found).__name__}, not a function or class")
    return found


def call_factory(
    factory: Callable[..., Any],
    shape: Sequence[int],
    *,
    name: str,
    options: Mapping[str, Any],
) -> "nn.Module":
    """Call ``factory(shape, **options)`` and make sure that a module comes back."""
    from torch import nn

    _check_options(factory, options, name)
    try:
        module = factory(tuple(shape), **options)
    except NsclError:
        raise
    except Exception as error:
        raise ModelError(
            f"model {name!r} failed for {_described(shape)} {tuple(shape)}: {one_line(error)}"
        ) from error
    if not isinstance(module, nn.Module):
        raise ModelError(
            f"model {name!r} must be a torch.nn.Module, its factory returned a "
            f"{type(module).__name__}"
        )
    return module


def _described(shape: Sequence[int]) -> str:
    return "texts" if len(shape) == 2 else "images"


def _attribute(holder: object, part: str, path: str) -> object:
    try:
        return getattr(holder, part)
    except AttributeError:
        public = [name for name in dir(holder) if not name.startswith("_")]
        hint = did_you_mean(part, public)
        raise ModelError(f"there is no {part!r} to build the model {path!r}{hint}") from None


def _check_options(factory: Callable[..., Any], options: Mapping[str, Any], name: str) -> None:
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        # Some callables written in C have none; the call itself reports a wrong option.
        return
    parameters = list(signature.parameters.values())
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    # The first parameter is the shape of the images or texts.
    known = [p.name for p in parameters[1:] if p.kind is not p.POSITIONAL_ONLY]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ModelError(
            f"model {name!r} has no option {unknown[0]!r}: it has {', '.join(known) or 'none'}"
        )
