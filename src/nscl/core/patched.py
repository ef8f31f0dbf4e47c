"""A layer whose ``forward`` was replaced on the instance: whether it is still what its class says.

Wrappers that put a function in the place of ``forward`` and call the original inside (accelerate's
hooks, gradient checkpointing) leave the layer what it was; a patch that computes something else
does not. Looking at the function cannot tell them apart, comparing outputs can.
"""

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from nscl.core.layers import METHODS, Call

_ROUNDING = 100.0  # units in the last place that a sum in another order may cost


def is_patched(module: nn.Module) -> bool:
    """Whether a method that a layer type is known by was put on the instance."""
    return any(method in vars(module) for method in METHODS)


def unpatched(module: nn.Module) -> Any:
    """A shallow copy with the methods of its class and without hooks; children are shared."""
    # Not copy.copy: a class made by fully_shard wants to construct its modules itself.
    probe: Any = object.__new__(type(module))
    probe.__dict__.update({k: v for k, v in vars(module).items() if k not in METHODS})
    # The copy shares its dictionaries with the original: give it its own before changing them.
    probe._modules = dict(module._modules)
    for hooks in ("_forward_hooks", "_forward_pre_hooks"):
        setattr(probe, hooks, OrderedDict())
    return probe


def own_output(module: Any, call: Call) -> Any:
    """What the class computes in a call. Not by ``__call__``, which may be compiled."""
    return type(module).forward(module, *call.args, **call.kwargs)


def computes_as_its_type(module: nn.Module, call: Call) -> bool:
    """Whether this call of a patched layer gave what its class would have given."""
    return _alike(own_output(unpatched(module), call), call.output)


def _alike(expected: Any, given: Any) -> bool:
    if isinstance(expected, Tensor) and isinstance(given, Tensor):
        if expected.shape != given.shape:
            return False
        if expected.numel() == 0:
            return True
        eps = max(torch.finfo(t.dtype).eps for t in (expected, given))
        apart = (expected.double() - given.double()).abs()
        return not bool((apart > _ROUNDING * eps * expected.double().abs().max()).any())
    if isinstance(expected, tuple | list) and isinstance(given, tuple | list):
        return len(expected) == len(given) and all(map(_alike, expected, given))
    return type(expected) is type(given)
