"""Whether a layer computes what it is taken for, by comparison with its own output.

A layer that was taught to nscl, or recognised by how it looks, must give what its weights make of
the rows that were found. A layer whose ``forward`` was replaced on the instance must give what its
class gives. Wrappers that call the original inside (accelerate's hooks, gradient checkpointing)
leave the layer what it was; a patch that computes something else does not. Neither function shows
which it is, a comparison of outputs does.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nscl.core.covariance.observations import Observation
from nscl.core.model.layer_types import DEFINING_METHODS, Call, LayerType

_ROUNDING = 100.0  # units in the last place that a sum in another order may cost


def is_patched(module: nn.Module) -> bool:
    """Whether the instance has its own version of a method that defines its layer type."""
    return any(method in vars(module) for method in DEFINING_METHODS)


def unpatched(module: nn.Module) -> Any:
    """A shallow copy with the methods of its class and without hooks; children are shared."""
    # Not copy.copy: a class made by fully_shard wants to construct its modules itself.
    probe: Any = object.__new__(type(module))
    probe.__dict__.update({k: v for k, v in vars(module).items() if k not in DEFINING_METHODS})
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


def computes_from_rows(
    layer_type: LayerType, module: nn.Module, call: Call, seen: Sequence[Observation]
) -> bool:
    """Whether a call gave what the layer's weights make of the rows that were found in it."""
    if layer_type.output is None:
        return True
    expected = layer_type.output(module, call, seen)
    given = call.output[0] if isinstance(call.output, tuple) else call.output
    if not isinstance(given, Tensor) or given.numel() != expected.numel():
        return False
    eps = max(torch.finfo(t.dtype).eps for t in (expected, given))
    apart = (expected.flatten().double() - given.flatten().double()).norm()
    # Other kernels sum in another order, so half of the digits must do. What is not finite has its
    # own error.
    return not bool(apart > eps**0.5 * given.double().norm())
