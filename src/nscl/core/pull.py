"""The norm layers' penalty as a loan: its gradient joins the user's own for one step only.

The user's loss knows nothing of the penalty, and after the step ``.grad`` is the user's again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from nscl.core.anchors import Anchor
from nscl.core.shards import local, local_rows


@dataclass(frozen=True)
class _Loan:
    """A parameter whose gradient is ours for now, and the user's own."""

    parameter: Tensor
    own: Tensor
    lent: Tensor
    version: int


class Pull:
    """Pulls the norm parameters of one optimizer towards their anchors."""

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
        self._loans: list[_Loan] = []

    @torch.no_grad()
    def lend(self, optimizer: Optimizer) -> None:
        """Add the penalty's gradient, in the scale and with the sign that ``step`` will expect."""
        groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        for parameter, anchor in self._targets:
            own = parameter.grad
            if own is not None:
                group = groups[id(parameter)]
                rate = group.get("lr")  # some optimizers have none, or find their own: None
                pull = anchor.gradient(
                    local(parameter.detach()), rate=0.0 if rate is None else rate
                )
                pull = -pull if group.get("maximize") else pull
                parameter.grad = own.clone()
                lent = local(parameter.grad)
                lent.add_(_scaled(pull, optimizer))
                self._loans.append(_Loan(parameter, own, parameter.grad, lent._version))

    @torch.no_grad()
    def take_back(self, optimizer: Optimizer) -> None:
        """After a step: give each gradient back, unscaled where the optimizer unscales it."""
        divisor = _unscaled_by(optimizer)
        for loan in self._loans:
            # An optimizer that clears gradients in its step has ended the loan itself.
            if loan.parameter.grad is loan.lent:
                own = local(loan.own)
                if divisor is not None:
                    own.div_(divisor.to(own.device))
                loan.parameter.grad = loan.own
        self._loans = []

    def cancel(self) -> None:
        """After a step that raised: give back what nobody has cleared or filled anew since."""
        for loan in self._loans:
            untouched = local(loan.lent)._version == loan.version
            if loan.parameter.grad is loan.lent and untouched:
                loan.parameter.grad = loan.own
        self._loans = []


def _here(name: str, parameter: Tensor, anchor: Anchor) -> Anchor:
    """The rows of an anchor that live here, moved once instead of at every step."""
    start, stop = local_rows(name, parameter)
    precise = torch.float64 if parameter.dtype == torch.float64 else torch.float32
    part = anchor.rows(start, stop)
    fisher, pull = (t.to(parameter.device, precise) for t in (part.fisher, part.pull))
    return Anchor(fisher, pull, part.batches)


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
    """What a fused ``step`` has divided gradients by: nothing, if it found an infinity."""
    scale: Tensor | None = getattr(optimizer, "grad_scale", None)
    found: Tensor | None = getattr(optimizer, "found_inf", None)
    if scale is None or found is None:
        return scale
    return torch.where(found.to(scale.device) > 0, torch.ones_like(scale), scale)
