"""Layers that behave as in eval mode inside every forward pass, whatever mode the model is in.

Hooks rather than ``layer.eval()``, because training loops call ``model.train()`` at every epoch.
"""

from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle


class EvaluatingHooks:
    """Put ``layers`` into eval mode for the time of their own forward pass while attached."""

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        self._layers = list(layers)
        self._handles: list[RemovableHandle] = []
        self._was_training: set[int] = set()

    @property
    def active(self) -> bool:
        """Whether the hooks are on the layers."""
        return bool(self._handles)

    def attach(self) -> None:
        """Begin; attaching twice changes nothing."""
        if self.active:
            return
        for layer in self._layers:
            self._handles.append(layer.register_forward_pre_hook(self._before))
            # always_call: the mode comes back although the forward pass failed.
            self._handles.append(layer.register_forward_hook(self._after, always_call=True))

    def remove(self) -> None:
        """End; the layers follow the model's mode again."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _before(self, layer: nn.Module, _inputs: Any) -> None:
        if layer.training:
            self._was_training.add(id(layer))
            layer.training = False

    def _after(self, layer: nn.Module, _inputs: Any, _output: Any) -> None:
        if id(layer) in self._was_training:
            self._was_training.discard(id(layer))
            layer.training = True
