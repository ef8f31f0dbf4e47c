"""What is asked of an optimizer: whether it can be protected, and what its step has done.

It is protected once and by one memory: two projections of one parameter would hold neither.
"""

import sys
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor
from torch.optim import LBFGS, Optimizer

from nscl.errors import ProtectionError

if TYPE_CHECKING:
    from nscl.core.memory import Memory
    from nscl.core.protection.step_hooks import Protection

# All memories know who protects an optimizer. An entry ends with its optimizer and keeps nothing
# alive itself.
_PROTECTIONS = weakref.WeakKeyDictionary[Optimizer, "weakref.WeakSet[Protection]"]()


def register(optimizer: Optimizer, protection: "Protection") -> None:
    """Note that an optimizer is protected."""
    _PROTECTIONS.setdefault(optimizer, weakref.WeakSet()).add(protection)


def inner_optimizer(optimizer: object) -> Optimizer:
    """The torch optimizer itself, inside the wrappers of accelerate or Fabric."""
    while isinstance(getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = optimizer.optimizer  # type: ignore[attr-defined]
    if optimizer is None:
        raise TypeError(
            "protect needs a torch.optim.Optimizer, not None: frameworks make it when training "
            "starts, so use a callback: nscl.integrations.transformers.KeepMemory or "
            "nscl.integrations.lightning.KeepMemory"
        )
    if not isinstance(optimizer, Optimizer):
        raise ProtectionError(
            f"protect needs a torch.optim.Optimizer, not {type(optimizer).__name__}"
        )
    if isinstance(optimizer, LBFGS):
        raise ProtectionError(
            "LBFGS cannot be protected: its line search relies on the unprojected step, so "
            "projecting it afterwards makes the loss rise; use SGD, Adam, AdamW or another "
            "first-order optimizer"
        )
    return optimizer


def check_unprotected(optimizer: Optimizer, memory: "Memory") -> None:
    """Refuse a second protection; a second memory of the same model would undo the first one's.

    Memories of models without a common parameter, say an encoder and a decoder that one optimizer
    trains, do not meet.
    """
    kind, mine = type(optimizer).__name__, {id(p) for p in memory.model.parameters()}
    for protection in list(_PROTECTIONS.get(optimizer, ())):
        if not protection.guards(optimizer):
            continue
        if protection.memory is memory:
            raise ProtectionError(f"this {kind} is protected already; once is enough for all tasks")
        if any(id(p) in mine for p in protection.memory.model.parameters()):
            raise ProtectionError(
                f"this {kind} is protected by another memory already ({protection.memory!r}): "
                "call remove() on the Protection that its protect() returned, make another "
                "optimizer, or merge the two memories"
            )


def check_holds(optimizer: Optimizer, parameters: Mapping[str, Tensor]) -> None:
    """Refuse an optimizer that holds none of the model's parameters."""
    held = [p for group in optimizer.param_groups for p in group["params"]]
    known = {id(p) for p in parameters.values()}
    if not any(id(p) in known for p in held):
        raise ProtectionError(
            f"{type(optimizer).__name__} holds {len(held)} parameters and none of them belongs "
            "to this memory's model: was the optimizer made before the model was moved, copied "
            "or sharded?"
        )


def was_skipped(optimizer: Optimizer) -> bool:
    """Whether GradScaler has found infinite gradients: a fused optimizer then moves nothing."""
    found: Tensor | None = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found > 0)


def is_nested(optimizer: Optimizer) -> bool:
    """Whether this is the step of a parent class: torch runs the hooks once for each class.

    A subclass that calls ``super().step()`` has two hooked steps, and what it does around the
    inner one counts too. Whether the outer one is still under way only the call stack knows: after
    an exception nothing else would. A parent's step may get its hooks later, with the first
    optimizer of that class, so the answer cannot be kept.
    """
    steps = [vars(kind).get("step") for kind in type(optimizer).__mro__]
    if sum(getattr(step, "hooked", False) for step in steps) < 2:
        return False
    hooked = type(optimizer).step.__code__
    frame, running = sys._getframe(1), 0
    while frame is not None:
        running += frame.f_code is hooked and frame.f_locals.get("self") is optimizer
        frame = frame.f_back  # type: ignore[assignment]
    return running > 1
