"""EWC's penalty on norm layers: its gradient is added to the user's own for one step only.

The user's loss does not contain the penalty, and after the step ``.grad`` is the user's again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from nscl.core.distributed.fsdp import local, local_rows
from nscl.core.norms.fisher import Anchor
from nscl.core.norms.parabola import Parabola


@dataclass(frozen=True)
class _Replaced:
    """A parameter whose gradient was replaced for the length of a step."""

    parameter: Tensor
    own: Tensor  # the user's gradient
    with_penalty: Tensor
    version: int


class NormPenalty:
    """Adds the penalty's gradient to the norm parameters of one optimizer."""

    def __init__(
        self,
        moving: Mapping[str, Tensor] | None = None,
        anchors: Mapping[str, Anchor] | None = None,
    ) -> None:
        self._targets = [
            (parameter, _here(name, parameter, anchors[name]))
            for name, parameter in (moving or {}).items()
            if anchors and name in anchors
        ]
        self._replaced: list[_Replaced] = []

    @torch.no_grad()
    def add_penalty_grad(self, optimizer: Optimizer) -> None:
        """Add the penalty's gradient, in the scale and with the sign that ``step`` will expect."""
        groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        for parameter, parabola in self._targets:
            own = parameter.grad
            if own is not None:
                group = groups[id(parameter)]
                rate = group.get("lr")  # some optimizers have none, or find their own
                pull = parabola.gradient(
                    local(parameter.detach()), rate=0.0 if rate is None else rate
                )
                pull = -pull if group.get("maximize") else pull
                parameter.grad = own.clone()
                here = local(parameter.grad)
                here.add_(_scaled(pull, optimizer))
                self._replaced.append(_Replaced(parameter, own, parameter.grad, here._version))

    @torch.no_grad()
    def restore_grads(self, optimizer: Optimizer) -> None:
        """After a step: put the user's gradients back, unscaled if the optimizer has unscaled."""
        divisor = _unscaled_by(optimizer)
        for replaced in self._replaced:
            # Some optimizers clear gradients in their step: then there is nothing to put back.
            if replaced.parameter.grad is replaced.with_penalty:
                own = local(replaced.own)
                if divisor is not None:
                    own.div_(divisor.to(own.device))
                replaced.parameter.grad = replaced.own
        self._replaced = []

    def cancel(self) -> None:
        """After a step that raised: put back what was neither cleared nor filled again since."""
        for replaced in self._replaced:
            untouched = local(replaced.with_penalty)._version == replaced.version
            if replaced.parameter.grad is replaced.with_penalty and untouched:
                replaced.parameter.grad = replaced.own
        self._replaced = []


def _here(name: str, parameter: Tensor, anchor: Anchor) -> Parabola:
    """The rows of a penalty that live here, moved once instead of at every step."""
    precise = torch.float64 if parameter.dtype == torch.float64 else torch.float32
    part = anchor.parabola().rows(*local_rows(name, parameter))
    return part.to(parameter.device, precise)


def _scaled(pull: Tensor, optimizer: Optimizer) -> Tensor:
    """Fused optimizers unscale inside ``step``: GradScaler's factor is still in the gradients."""
    scale: Tensor | None = getattr(optimizer, "grad_scale", None)
    if scale is None:
        return pull
    # GradScaler's first factor, 65536, is infinite in float16.
    limit = torch.finfo(pull.dtype).max
    exact = pull.to(torch.promote_types(pull.dtype, torch.float32))
    return (exact * scale.to(exact)).clamp_(-limit, limit).to(pull.dtype)


def _unscaled_by(optimizer: Optimizer) -> Tensor | None:
    """What a fused ``step`` has divided gradients by: 1 if it found an infinity."""
    scale: Tensor | None = getattr(optimizer, "grad_scale", None)
    found: Tensor | None = getattr(optimizer, "found_inf", None)
    if scale is None or found is None:
        return scale
    return torch.where(found.to(scale.device) > 0, torch.ones_like(scale), scale)
