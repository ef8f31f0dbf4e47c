"""The guard on an optimizer: torch's step hooks, snapshot → ``step()`` → project the difference.

The update is projected, never the gradient: Adam's element-wise scaling, momentum and weight decay
would leave the subspace again. The optimizer stays the user's own object, so schedulers, GradScaler
and frameworks around it see nothing unusual.
"""

import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor
from torch.optim import LBFGS, Optimizer

from nscl.core.shards import local, local_rows
from nscl.core.updates import Plan, make_plan
from nscl.errors import ProtectionError

if TYPE_CHECKING:
    from nscl.core.memory import Memory

Hooked = tuple[tuple[Any, ...], dict[str, Any]]


class Protection:
    """Keeps one optimizer inside the null space; made by ``Memory.protect``.

    Usable as a context manager; ``remove()`` gives the optimizer back exactly as it was.
    """

    def __init__(self, memory: "Memory", optimizer: Optimizer) -> None:
        self._memory = memory
        self._optimizer = weakref.ref(optimizer)
        self._plan = Plan()
        self._plan_key: tuple[Any, ...] | None = None
        self._before: dict[str, Tensor] = {}
        self._gradients: list[tuple[Tensor, Tensor]] = []
        self._handles = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        optimizer = self._optimizer()
        if optimizer is None or not self.active:
            return "Protection(removed)"
        count = sum(len(group["params"]) for group in optimizer.param_groups)
        return f"Protection({type(optimizer).__name__} over {count} parameters)"

    @property
    def active(self) -> bool:
        """Whether the optimizer is still alive and still has our hooks."""
        optimizer = self._optimizer()
        return optimizer is not None and all(
            handle.id in (handle.hooks_dict_ref() or {}) for handle in self._handles
        )

    def remove(self) -> None:
        """Take the hooks off; doing it twice is harmless."""
        for handle in self._handles:
            handle.remove()
        self._before, self._plan, self._plan_key = {}, Plan(), None
        self._memory._forget_protection(self)

    def guards(self, optimizer: Optimizer) -> bool:
        """Whether this is the optimizer's active protection."""
        return self._optimizer() is optimizer and self.active

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Hooked | None:
        self._restore_gradients()
        plan = self._current_plan(optimizer)
        if self._memory.acts_on == "step":
            self._before = plan.snapshot()
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self._pull_norms(optimizer)
            return None
        wrapped = self._then_pull(optimizer, closure)
        if len(args) > 1:
            return (args[0], wrapped, *args[2:]), kwargs
        return args, {**kwargs, "closure": wrapped}

    @torch.no_grad()
    def _after_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._restore_gradients()
        state = self._memory._state
        self._plan.project(self._before if self._memory.acts_on == "step" else state.reference)
        self._before = {}

    def _current_plan(self, optimizer: Optimizer) -> Plan:
        """Plan anew when the memory, the optimizer's parameters or the model's have changed."""
        moving = [p for group in optimizer.param_groups for p in group["params"]]
        key = (
            id(self._memory._state),
            tuple((id(p), p.requires_grad) for p in moving),
            all(self._memory._owns(name, p) for name, p in self._plan.parameters.items()),
        )
        if key != self._plan_key or not key[-1]:
            names = self._memory._names()
            named = {names[id(p)]: p for p in moving if id(p) in names and p.requires_grad}
            self._plan = make_plan(
                self._memory._state,
                self._memory.rule,
                named,
                frobenius=self._memory.scale == "frobenius",
            )
            self._plan_key = (*key[:-1], True)
            self._moving = named
        return self._plan

    def _then_pull(self, optimizer: Optimizer, closure: Callable[[], Any]) -> Callable[[], Any]:
        """A closure computes its gradients inside ``step``: add the penalty's right after."""

        def wrapped() -> Any:
            loss = closure()
            self._pull_norms(optimizer)
            return loss

        return wrapped

    @torch.no_grad()
    def _pull_norms(self, optimizer: Optimizer) -> None:
        """Add the gradient of the norm layers' penalty; the user's own is put back afterwards."""
        anchors = self._memory._state.anchors
        for name, parameter in self._moving.items():
            if name in anchors and parameter.grad is not None:
                start, stop = local_rows(name, parameter)
                pull = anchors[name].rows(start, stop).gradient(local(parameter.detach()))
                own = parameter.grad
                parameter.grad = own.clone()
                local(parameter.grad).add_(pull * _gradient_scale(optimizer, pull))
                self._gradients.append((parameter, own))

    def _restore_gradients(self) -> None:
        for parameter, own in self._gradients:
            parameter.grad = own
        self._gradients = []


def _gradient_scale(optimizer: Optimizer, like: Tensor) -> Tensor | float:
    """Fused optimizers unscale inside ``step``: GradScaler's factor is still in the gradients."""
    scale: Tensor | None = getattr(optimizer, "grad_scale", None)
    return 1.0 if scale is None else scale.to(like.device, like.dtype)


def inner_optimizer(optimizer: object) -> Optimizer:
    """The torch optimizer itself, inside the wrappers of accelerate or Fabric."""
    while isinstance(getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = optimizer.optimizer  # type: ignore[attr-defined]
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


def check_holds(optimizer: Optimizer, names: Mapping[int, str]) -> None:
    """An optimizer that holds none of the model's parameters would be protected in name only."""
    held = [p for group in optimizer.param_groups for p in group["params"]]
    if not any(id(p) in names for p in held):
        raise ProtectionError(
            f"{type(optimizer).__name__} holds {len(held)} parameters and none of them belongs "
            "to this memory's model: was the optimizer made before the model was moved, copied "
            "or sharded?"
        )
