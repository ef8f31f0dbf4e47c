"""Running statistics of norm layers move old outputs too: measured always, frozen on request."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from nscl.core.model.layer_types import running_statistics

Statistics = Mapping[str, Mapping[str, Tensor]]  # norm layer → running_mean, running_var


def snapshot(norms: Mapping[str, nn.Module]) -> dict[str, dict[str, Tensor]]:
    """Copy the running statistics of the layers that keep any."""
    found = {name: running_statistics(module) for name, module in norms.items()}
    return {
        name: {key: value.detach().clone() for key, value in kept.items()}
        for name, kept in found.items()
        if kept
    }


def shift(remembered: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> float:
    """How far a layer's statistics have moved, in remembered standard deviations.

    Each channel is a normal distribution; its 2-Wasserstein distance to the remembered one is
    ``√((μ − μ₀)² + (σ − σ₀)²)``. The result is the root mean square over channels of that over σ₀.
    """
    if "running_var" not in remembered or "running_var" not in now:
        return 0.0
    mean0, var0 = (remembered[k].double().cpu() for k in ("running_mean", "running_var"))
    mean, var = (now[k].double().cpu() for k in ("running_mean", "running_var"))
    floor = torch.finfo(torch.float32).eps * var0.max().clamp_min(torch.finfo(torch.float32).tiny)
    moved = (mean - mean0).square() + (var.sqrt() - var0.sqrt()).square()
    return float((moved / var0.clamp_min(floor)).mean().sqrt())


def _always() -> bool:
    return True


def _never() -> bool:
    return False


class Hold:
    """Hooks that put a layer into eval mode for the length of its forward pass.

    In a copy or a pickle of the layer the hooks do nothing, or are always on with ``copies``:
    ``is_on`` is not copied.
    """

    def __init__(self, is_on: Callable[[], bool] = _never, *, copies: bool = False) -> None:
        self._is_on, self._copies = is_on, copies
        self._was_training: list[bool] = []

    def __reduce__(self) -> tuple[Callable[[], "Hold"], tuple[()]]:
        return (_always_on if self._copies else Hold), ()

    def before(self, layer: nn.Module, args: Any) -> None:
        """Remember the mode and leave training mode, if statistics are to be held."""
        self._was_training.append(layer.training)
        if self._is_on():
            layer.training = False

    def after(self, layer: nn.Module, args: Any, output: Any) -> None:
        """Put the mode back."""
        layer.training = self._was_training.pop()


def _always_on() -> Hold:
    return Hold(_always, copies=True)


def without_statistics(norms: Mapping[str, nn.Module]) -> list[str]:
    """Layers that always normalise with the batch at hand: nothing they keep could be held.

    An instance norm without statistics is none of them: it treats every sample by itself.

    >>> without_statistics({"bn": nn.BatchNorm1d(2, track_running_stats=False)})
    ['bn']
    """
    return [
        name
        for name, module in norms.items()
        if getattr(module, "track_running_stats", None) is False
        and not running_statistics(module)
        and not isinstance(module, nn.modules.instancenorm._InstanceNorm)
    ]


def freeze(
    module: nn.Module, is_on: Callable[[], bool], *, copies: bool = False
) -> list[RemovableHandle]:
    """Make a layer normalise with its running statistics while training, when ``is_on()``."""
    hold = Hold(is_on, copies=copies)
    return [
        module.register_forward_pre_hook(hold.before, prepend=True),
        module.register_forward_hook(hold.after, always_call=True),
    ]


class Holding:
    """The norm layers whose statistics are held, each with its hooks."""

    def __init__(self) -> None:
        self._hooks = WeakKeyDictionary[nn.Module, list[RemovableHandle]]()

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def take(
        self, norms: Mapping[str, nn.Module], is_on: Callable[[str], bool], *, copies: bool = False
    ) -> None:
        """Hold these layers too, while ``is_on(name)``.

        With ``copies``, copies of the layers are held too, always.
        """
        added = {name: module for name, module in norms.items() if module not in self._hooks}
        if added:
            retrace()
        for name, module in added.items():
            self._hooks[module] = freeze(module, partial(is_on, name), copies=copies)

    def release(self) -> None:
        """Let all layers go."""
        self._let_go(list(self._hooks))

    def _let_go(self, norms: Collection[nn.Module]) -> None:
        if norms:
            retrace()
        for module in norms:
            for handle in self._hooks.pop(module, []):
                handle.remove()


def retrace() -> None:
    """Have compiled models traced again: a graph does not notice hooks that come, go or change."""
    torch.compiler.reset()
