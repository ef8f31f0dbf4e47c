"""What the model would have answered at the last ``remember``, without a second model.

The model itself is run once with the remembered weights and buffers, in eval mode and without a
gradient. Parameters that are whole are swapped by ``functional_call``; FSDP2's hooks want their own
parameters, so there the values of the shards change places for the length of the call.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from nscl.core.distributed.fsdp import local, part_of, reshard
from nscl.core.model.name_patterns import clean
from nscl.errors import ModelMismatchError, NsclError

# torch.compiler.disable imports torch._dynamo at once, which takes longer than all of nscl; the
# form that torch's own optimizers use imports it with the first call.
_not_compiled = getattr(torch, "_disable_dynamo", torch.compiler.disable)


class _Run(nn.Module):
    """A function of a model as a module around it, so that all of the model can be replaced."""

    def __init__(self, model: nn.Module, run: Callable[[nn.Module], Any]) -> None:
        super().__init__()
        self.model, self._run = model, run

    def forward(self) -> Any:
        return self._run(self.model)


def answer_as_remembered(
    model: nn.Module, remembered: Mapping[str, Tensor], args: tuple[Any, ...], kwargs: Any
) -> Any:
    """The model's output with other weights and buffers; it stays as it is."""
    return with_remembered(model, remembered, lambda itself: itself(*args, **kwargs))


@_not_compiled  # type: ignore[untyped-decorator]
def with_remembered(
    model: nn.Module, remembered: Mapping[str, Tensor], run: Callable[[nn.Module], Any]
) -> Any:
    """What ``run(model)`` returns while the model has other weights and buffers.

    What is not remembered, such as a head that was added since, is taken as it is now.
    """
    if not remembered:
        raise NsclError("there is nothing to recall: call memory.remember(...) first")
    reshard(model)  # after a forward pass FSDP2 has gathered copies where its parameters were
    values = {
        name: _value(clean(name), tensor, remembered) for name, tensor in _tensors(model).items()
    }
    known = {name: value for name, value in values.items() if value is not None}
    with torch.no_grad(), eval_mode(model):
        if any(hasattr(p, "placements") for p in model.parameters()):
            with _swapped(model, known):
                return run(model)
        inside = {f"model.{name}": value for name, value in known.items()}
        return functional_call(_Run(model, run), inside)


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _value(name: str, now: Tensor, remembered: Mapping[str, Tensor]) -> Tensor | None:
    found = remembered.get(name)
    if found is None:
        return None
    if found.shape != now.shape:
        raise ModelMismatchError(
            f"'{name}' was remembered with shape {tuple(found.shape)}, but the model has "
            f"{tuple(now.shape)}: recall needs the model as it was"
        )
    if hasattr(now, "placements"):
        return part_of(found, name, now)
    return found.to(now.device, now.dtype)


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode, and what was in training mode trains again afterwards."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def _swapped(model: nn.Module, values: Mapping[str, Tensor]) -> Iterator[None]:
    # By .data: what a graph has saved of these weights is back in place before it is used.
    targets = {name: local(t).data for name, t in _tensors(model).items() if name in values}
    own = {name: target.clone() for name, target in targets.items()}
    failed = True
    try:
        for name, target in targets.items():
            target.copy_(values[name])
        yield
        failed = False
    finally:
        for name, target in targets.items():
            target.copy_(own[name])
        reshard(model, failed=failed)  # the gathered copies are of the remembered weights
