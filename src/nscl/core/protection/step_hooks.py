"""Torch's step hooks around an optimizer: snapshot → ``step()`` → project the difference.

The update is projected, never the gradient: Adam's element-wise scaling, momentum and weight decay
would leave the subspace again. The optimizer stays the user's own object, so schedulers, GradScaler
and frameworks around it see nothing unusual.
"""

import weakref
from collections.abc import Callable, Mapping
from itertools import compress
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor
from torch.optim import Optimizer

from nscl.core.distributed.fsdp import reshard
from nscl.core.norms.ewc import NormPenalty
from nscl.core.projection.proximal.plan import ProximalPlan, make_proximal_plan
from nscl.core.projection.rules import Proximal
from nscl.core.projection.step_plan import StepPlan, make_plan, origins
from nscl.core.protection.live_state import LiveState
from nscl.core.protection.optimizer_checks import (
    is_nested,
    register,
    was_skipped,
)
from nscl.core.protection.pending import Pending, warn_if_waiting
from nscl.errors import ProtectionError

if TYPE_CHECKING:
    from nscl.core.memory import Memory

Hooked = tuple[tuple[Any, ...], dict[str, Any]]


class Protection:
    """Keeps one optimizer inside the null space; made by ``Memory.protect``.

    Usable as a context manager; ``remove()`` gives the optimizer back exactly as it was.
    """

    def __init__(
        self,
        memory: "Memory",
        optimizer: Optimizer,
        live: LiveState,
        *,
        check_weights: Callable[[Mapping[str, Tensor]], None],
        on_remove: Callable[["Protection"], None],
    ) -> None:
        """``live`` is the memory's state; ``check_weights`` warns if the model has other weights.

        ``on_remove`` is called when the hooks are off.
        """
        self._memory, self._live = memory, live
        self._check_weights, self._on_remove = check_weights, on_remove
        self._optimizer = weakref.ref(optimizer)
        self._plan: StepPlan | ProximalPlan = StepPlan()
        self._penalty, self._pending = NormPenalty({}, {}), Pending()
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
        register(optimizer, self)
        model = weakref.ref(memory.model)
        weakref.finalize(self, warn_if_waiting, self._pending, model).atexit = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"Protection({self.describe() or 'removed'})"

    def describe(self) -> str:
        """The optimizer, and how many of its parameters are protected; empty once removed."""
        optimizer = self._optimizer()
        if optimizer is None or not self.active:
            return ""
        held, known = self.parameters, {id(p) for p in self._memory.model.parameters()}
        ours = sum(id(p) in known for p in held)
        some = "" if ours == len(held) else f", {ours} of them protected"
        return f"{type(optimizer).__name__} over {len(held)} parameters{some}"

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
        self._penalty.cancel()
        self._plan, self._penalty, self._plan_key = StepPlan(), NormPenalty({}, {}), None
        self._planned, self._before, self._origins = [], None, {}
        self._on_remove(self)

    @property
    def parameters(self) -> list[Tensor]:
        """What the optimizer moves; nothing once the hooks are off."""
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
        if is_nested(optimizer):
            return None
        self._before = None
        self._penalty.cancel()
        self._make_plan(optimizer)
        acts_on_step = self._memory.acts_on == "step"
        on_step = isinstance(self._plan, StepPlan) and acts_on_step
        self._before = self._plan.snapshot() if on_step else self._origins  # type: ignore[union-attr]
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self._penalty.add_penalty_grad(optimizer)
            return None
        wrapped = self._then_penalty(optimizer, closure)
        if len(args) > 1:
            return (args[0], wrapped, *args[2:]), kwargs
        return args, {**kwargs, "closure": wrapped}

    @torch.no_grad()
    def _after_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if is_nested(optimizer):
            return
        before, self._before = self._before, None
        if before is None:
            raise ProtectionError(
                f"{type(optimizer).__name__}.step() ended without having begun, so what it did "
                "cannot be projected: do not compile the step of an optimizer that calls "
                "another's"
            )
        self._penalty.restore_grads(optimizer)
        self._live.steps += 1
        if isinstance(self._plan, StepPlan) and self._memory.acts_on == "step":
            self._plan.project(before)
        elif not was_skipped(optimizer):
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
        self._plan_key = None  # of the weights before: what was loaded must not be treated by it

    def _make_plan(self, optimizer: Optimizer) -> None:
        """Plan again when the memory, the optimizer's parameters or the model's have changed."""
        held = [p for group in optimizer.param_groups for p in group["params"]]
        # Optimizers move whatever has a gradient, also one left over from before it was frozen.
        can_move = [p.requires_grad or p.grad is not None for p in held]
        key = (
            self._live.revision,
            tuple(
                (id(p), moves, p.dtype, p.device) for p, moves in zip(held, can_move, strict=True)
            ),
        )
        if key == self._plan_key:
            # An evaluation may have left FSDP2's gathered copies: no reason to plan again.
            if not self._owns_all():
                reshard(self._memory.model)
            if self._owns_all():
                return
        if self._plan_key is not None:
            self.flush()
        everything = self._live.parameters()
        names = {id(p): name for name, p in everything.items()}
        moving = {names[id(p)]: p for p in compress(held, can_move) if id(p) in names}
        self._memory.decompose_unfrozen()
        key = (self._live.revision, key[1])
        state, frobenius = self._live.state, self._memory.scale == "frobenius"
        rule = self._memory.rule
        if isinstance(rule, Proximal):
            self._plan, self._penalty = make_proximal_plan(state, rule, moving), NormPenalty({}, {})
        else:
            given = None if self._memory.projector is not None else rule
            self._plan = make_plan(state, given, moving, frobenius=frobenius)
            self._penalty = NormPenalty(moving, state.anchors)
        self._live.narrowed |= self._plan.narrowed
        if self._memory.acts_on == "displacement":
            self._origins = origins(self._plan.parameters, state, moving, everything)
            if not self._pending.steps:  # those that wait may have moved anything
                self._check_weights(everything)
        self._plan_key, self._planned = key, held

    def _owns_all(self) -> bool:
        """Whether the model still has the very parameters that were planned for."""
        model = self._memory.model
        for name, parameter in self._plan.parameters.items():
            owner, _, attribute = name.rpartition(".")
            try:
                now = getattr(model.get_submodule(owner), attribute, None)
            except AttributeError:
                return False
            if now is not parameter:
                return False
        return True

    def _then_penalty(self, optimizer: Optimizer, closure: Callable[[], Any]) -> Callable[[], Any]:
        """A closure computes its gradients inside ``step``: add the penalty's right after."""

        def wrapped() -> Any:
            self._penalty.cancel()
            loss = closure()
            self._penalty.add_penalty_grad(optimizer)
            return loss

        return wrapped
