"""Steps that wait for their displacement to be treated: how many, and at which rates."""

import warnings
import weakref
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from nscl.errors import NsclWarning, ProtectionError


class Pending:
    """Sums of learning rates since the displacement was last treated, by parameter name."""

    def __init__(self) -> None:
        self.steps = 0
        self._rates: dict[str, float] = {}

    def note(self, optimizer: Optimizer, parameters: Mapping[str, Tensor], *, rated: bool) -> None:
        """One more step; a parameter without a gradient was not moved by it.

        Where no parameter has a gradient, the optimizer goes by other signs and may have moved all.
        """
        groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        moved = {name: p for name, p in parameters.items() if p.grad is not None}
        if not moved and all(p.grad is None for g in optimizer.param_groups for p in g["params"]):
            moved = dict(parameters)
        for name, parameter in moved.items():
            rate = rate_of(groups[id(parameter)], optimizer) if rated else 0.0
            self._rates[name] = self._rates.get(name, 0.0) + rate
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        """What waits, as plain data."""
        return {"steps": self.steps, "rates": dict(self._rates)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what waited when the state was saved."""
        self.steps, self._rates = int(state["steps"]), dict(state["rates"])

    def take(self) -> dict[str, float]:
        """The sums so far; nothing waits any more."""
        rates, self._rates, self.steps = self._rates, {}, 0
        return rates


def rate_of(group: Mapping[str, object], optimizer: Optimizer) -> float:
    """A group's learning rate: a penalty is measured in it, so one that has none is refused."""
    rate = group.get("lr")
    if isinstance(rate, int | float | Tensor):
        return float(rate)
    raise ProtectionError(
        f"Penalty is coupled to the learning rate, and {type(optimizer).__name__} has none "
        "('lr' in its parameter groups): give the groups one, or use rule=nscl.Budget()"
    )


def warn_if_waiting(pending: Pending, model: "weakref.ref[nn.Module]") -> None:
    """Warn that a protection has gone before its last steps were treated, if its model has not.

    They cannot be treated any more: by now the model may have been given other weights.
    """
    if pending.steps and model() is not None:
        warnings.warn(
            f"the last {pending.steps} optimizer steps were not treated, because the optimizer and "
            "its memory are gone: call memory.flush() at the end of training",
            NsclWarning,
            stacklevel=2,
        )
