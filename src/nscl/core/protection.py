"""The guard on an optimizer: torch's step hooks, snapshot → ``step()`` → project the difference.

The update is projected, never the gradient: Adam's element-wise scaling, momentum and weight decay
would leave the subspace again. The optimizer stays the user's own object, so schedulers, GradScaler
and frameworks around it see nothing unusual.
"""

import sys
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor
from torch.optim import LBFGS, Optimizer

from nscl.core.pending import Pending
from nscl.core.proximal import ProximalPlan, make_proximal_plan
from nscl.core.pull import Pull
from nscl.core.rules import Proximal
from nscl.core.shards import reshard
from nscl.core.updates import Plan, make_plan, origins
from nscl.errors import ProtectionError

if TYPE_CHECKING:
    from nscl.core.memory import Memory

Hooked = tuple[tuple[Any, ...], dict[str, Any]]

# Who guards an optimizer is known to all memories: two projections of one parameter, one after the
# other, hold neither. An entry ends with its optimizer, and keeps nothing alive itself.
_GUARDS = weakref.WeakKeyDictionary[Optimizer, "weakref.WeakSet[Protection]"]()


class Protection:
    """Keeps one optimizer inside the null space; made by ``Memory.protect``.

    Usable as a context manager; ``remove()`` gives the optimizer back exactly as it was.
    """

    def __init__(self, memory: "Memory", optimizer: Optimizer) -> None:
        self._memory = memory
        self._optimizer = weakref.ref(optimizer)
        self._plan: Plan | ProximalPlan = Plan()
        self._pull, self._pending = Pull({}, {}), Pending()
        self._plan_key: tuple[Any, ...] | None = None
        self._planned: list[Tensor] = []  # kept alive: an id in the key must stay taken
        self._before: Mapping[str, Tensor] | None = None  # only while a step is under way
        self._origins: Mapping[str, Tensor] = {}
        # Hooks ask what objects are, not what they hold; a traced answer would go stale.
        before, after = map(torch.compiler.disable, (self._before_step, self._after_step))
        self._handles = [
            optimizer.register_step_pre_hook(before),
            optimizer.register_step_post_hook(after),
        ]
        _GUARDS.setdefault(optimizer, weakref.WeakSet()).add(self)

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
        held, known = self.parameters, {id(p) for p in self._memory.model.parameters()}
        ours = sum(id(p) in known for p in held)
        guarded = "" if ours == len(held) else f", {ours} of them guarded"
        return f"Protection({type(optimizer).__name__} over {len(held)} parameters{guarded})"

    @property
    def active(self) -> bool:
        """Whether the optimizer is still alive and still has our hooks."""
        optimizer = self._optimizer()
        return optimizer is not None and all(
            handle.id in (handle.hooks_dict_ref() or {}) for handle in self._handles
        )

    def remove(self) -> None:
        """Take the hooks off, once all steps are treated; doing it twice is harmless."""
        self.flush()
        for handle in self._handles:
            handle.remove()
        self._pull.cancel()
        self._plan, self._pull, self._plan_key = Plan(), Pull({}, {}), None
        self._planned, self._before, self._origins = [], None, {}
        self._memory._forget_protection(self)

    @property
    def parameters(self) -> list[Tensor]:
        """What the optimizer moves; nothing once the guard is off."""
        optimizer = self._optimizer()
        if optimizer is None or not self.active:
            return []
        return [p for group in optimizer.param_groups for p in group["params"]]

    @property
    def memory(self) -> "Memory":
        """Whose null space this is."""
        return self._memory

    def guards(self, optimizer: Optimizer) -> bool:
        """Whether this is the optimizer's active protection."""
        return self._optimizer() is optimizer and self.active

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Hooked | None:
        if _is_nested(optimizer):
            return None
        self._before = None
        self._pull.cancel()
        self._make_plan(optimizer)
        acts_on_step = self._memory.acts_on == "step"
        on_step = isinstance(self._plan, Plan) and acts_on_step
        self._before = self._plan.snapshot() if on_step else self._origins  # type: ignore[union-attr]
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self._pull.lend(optimizer)
            return None
        wrapped = self._then_pull(optimizer, closure)
        if len(args) > 1:
            return (args[0], wrapped, *args[2:]), kwargs
        return args, {**kwargs, "closure": wrapped}

    @torch.no_grad()
    def _after_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if _is_nested(optimizer):
            return
        before, self._before = self._before, None
        if before is None:
            raise ProtectionError(
                f"{type(optimizer).__name__}.step() ended without having begun, so what it did "
                "cannot be projected: do not compile the step of an optimizer that calls "
                "another's"
            )
        self._pull.take_back(optimizer)
        self._memory._steps += 1
        if isinstance(self._plan, Plan) and self._memory.acts_on == "step":
            self._plan.project(before)
        elif not _was_skipped(optimizer):
            rated = isinstance(self._plan, ProximalPlan) and self._plan.rule.needs_rate
            self._pending.note(optimizer, self._plan.parameters, rated=rated)
            if self._pending.steps >= self._memory.every:
                self.flush()

    @torch.no_grad()
    def flush(self) -> None:
        """Treat the displacement now, if steps wait for it."""
        if not self._pending.steps:
            return
        optimizer = self._optimizer()
        if self._plan_key is None and optimizer is not None:
            self._make_plan(optimizer)
        self._plan.treat(self._origins, self._pending.take())
        reshard(self._memory.model)  # what FSDP2 has gathered is of the weights before

    def state_dict(self) -> dict[str, Any]:
        """Steps that ``every`` has left waiting, for a checkpoint of weights as they are now.

        ``memory.state_dict()`` treats them first, so that there is nothing to save here; a run that
        must continue bit for bit in between saves this one beside the optimizer's state.
        """
        return self._pending.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved ``state_dict``, with the weights that were saved beside it."""
        self._pending.load_state_dict(state)

    def _make_plan(self, optimizer: Optimizer) -> None:
        """Plan anew when the memory, the optimizer's parameters or the model's have changed."""
        held = [p for group in optimizer.param_groups for p in group["params"]]
        key = (
            self._memory._revision,
            tuple((id(p), _can_move(p), p.dtype, p.device) for p in held),
        )
        if key == self._plan_key:
            # An evaluation may have left FSDP2's gathered copies: no reason to plan anew.
            if not self._owns_all():
                reshard(self._memory.model)
            if self._owns_all():
                return
        if self._plan_key is not None:
            self.flush()
        everything = self._memory._parameters()
        names = {id(p): name for name, p in everything.items()}
        moving = {names[id(p)]: p for p in held if id(p) in names and _can_move(p)}
        state, frobenius = self._memory._state, self._memory.scale == "frobenius"
        rule = self._memory.rule
        if isinstance(rule, Proximal):
            self._plan, self._pull = make_proximal_plan(state, rule, moving), Pull({}, {})
        else:
            self._plan = make_plan(state, rule, moving, frobenius=frobenius)
            self._pull = Pull(moving, state.anchors)
        self._memory._narrowed |= self._plan.narrowed
        if self._memory.acts_on == "displacement":
            self._origins = origins(self._plan.parameters, state, moving, everything)
            self._memory._tell_other_weights(everything)
        self._plan_key, self._planned = key, held

    def _owns_all(self) -> bool:
        return all(self._memory._owns(name, p) for name, p in self._plan.parameters.items())

    def _then_pull(self, optimizer: Optimizer, closure: Callable[[], Any]) -> Callable[[], Any]:
        """A closure computes its gradients inside ``step``: add the penalty's right after."""

        def wrapped() -> Any:
            self._pull.cancel()
            loss = closure()
            self._pull.lend(optimizer)
            return loss

        return wrapped


def _can_move(parameter: Tensor) -> bool:
    """Optimizers move whatever has a gradient, also one left over from before it was frozen."""
    return parameter.requires_grad or parameter.grad is not None


def _was_skipped(optimizer: Optimizer) -> bool:
    """Whether GradScaler told a fused optimizer of infinite gradients: it has moved nothing."""
    found: Tensor | None = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found > 0)


def _is_nested(optimizer: Optimizer) -> bool:
    """Whether this is the step of a parent class: torch runs the hooks once for each class.

    A subclass that calls ``super().step()`` has two hooked steps, and what it does around the
    inner one counts too. Whether the outer one is still going on only the call stack knows: after
    an exception nothing else would.
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


def check_unguarded(optimizer: Optimizer, memory: "Memory") -> None:
    """One guard is enough; a second memory of the same model would undo the first one's projection.

    Memories of models without a common parameter, say an encoder and a decoder that one optimizer
    trains, do not meet.
    """
    kind, mine = type(optimizer).__name__, {id(p) for p in memory.model.parameters()}
    for guard in list(_GUARDS.get(optimizer, ())):
        if not guard.guards(optimizer):
            continue
        if guard.memory is memory:
            raise ProtectionError(f"this {kind} is protected already; once is enough for all tasks")
        if any(id(p) in mine for p in guard.memory.model.parameters()):
            raise ProtectionError(
                f"this {kind} is protected by another memory already ({guard.memory!r}), and two "
                "projections one after the other hold neither: call remove() on the Protection "
                "that its protect() returned, make an optimizer of its own, or merge the two "
                "memories"
            )


def check_holds(optimizer: Optimizer, parameters: Mapping[str, Tensor]) -> None:
    """An optimizer that holds none of the model's parameters would be protected in name only."""
    held = [p for group in optimizer.param_groups for p in group["params"]]
    known = {id(p) for p in parameters.values()}
    if not any(id(p) in known for p in held):
        raise ProtectionError(
            f"{type(optimizer).__name__} holds {len(held)} parameters and none of them belongs "
            "to this memory's model: was the optimizer made before the model was moved, copied "
            "or sharded?"
        )
