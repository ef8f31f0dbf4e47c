"""The normalisation layers of a model: found by type, their running statistics copied and set."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from nscl.core.model.elementwise import NORM_TYPES
from nscl.errors import ModelMismatchError

LayerStatistics = dict[str, Tensor]
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


def norm_layers(module: nn.Module, *, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield the normalisation layers inside ``module``, by type, with their qualified names."""
    for name, layer in module.named_modules(prefix=prefix):
        if isinstance(layer, NORM_TYPES):
            yield name, layer


def layers_with_statistics(module: nn.Module) -> dict[str, _NormBase]:
    """Find the layers that keep running statistics, by qualified name."""
    return {
        name: layer
        for name, layer in norm_layers(module)
        if isinstance(layer, _NormBase) and layer.running_mean is not None
    }


def copy_statistics(layers: Mapping[str, _NormBase]) -> dict[str, LayerStatistics]:
    """Copy the statistics of all layers, keyed by layer name and buffer name."""
    return {
        name: {buffer: tensor.clone() for buffer, tensor in _buffers(layer).items()}
        for name, layer in layers.items()
    }


@torch.no_grad()
def set_statistics(
    layers: Mapping[str, _NormBase], statistics: Mapping[str, LayerStatistics]
) -> None:
    """Write statistics into the layers' own buffers, which keep their identity and device."""
    for name, layer in layers.items():
        for buffer, tensor in _buffers(layer).items():
            tensor.copy_(statistics[name][buffer])


def check_statistics(layers: Mapping[str, _NormBase], statistics: Any, *, place: str) -> None:
    """Refuse statistics that do not belong to these layers, naming the layer and both shapes."""
    if not isinstance(statistics, Mapping) or set(statistics) != set(layers):
        given = sorted(statistics) if isinstance(statistics, Mapping) else statistics
        raise ModelMismatchError(f"{place} are of layers {given}, the model has {sorted(layers)}")
    for name, layer in layers.items():
        for buffer, tensor in _buffers(layer).items():
            kept = statistics[name]
            found = kept.get(buffer) if isinstance(kept, Mapping) else None
            shape = list(found.shape) if isinstance(found, Tensor) else None
            if shape != list(tensor.shape):
                raise ModelMismatchError(
                    f"{place}: {name}.{buffer} has shape {shape}, the model's {list(tensor.shape)}"
                )


def _buffers(layer: _NormBase) -> LayerStatistics:
    found = {name: getattr(layer, name) for name in BUFFERS}
    return {name: tensor for name, tensor in found.items() if tensor is not None}
