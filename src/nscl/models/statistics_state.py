"""Taking the running statistics out of normalisation layers, and putting them back."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from nscl.errors import ModelMismatchError

Statistics = dict[str, Tensor]
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


def taken(layers: Mapping[str, _NormBase]) -> dict[str, Statistics]:
    """Copy the statistics of all layers, keyed by layer name and buffer name."""
    return {
        name: {buffer: tensor.clone() for buffer, tensor in _buffers(layer).items()}
        for name, layer in layers.items()
    }


@torch.no_grad()
def put(layers: Mapping[str, _NormBase], statistics: Mapping[str, Statistics]) -> None:
    """Write statistics into the layers' own buffers, which keep their identity and device."""
    for name, layer in layers.items():
        for buffer, tensor in _buffers(layer).items():
            tensor.copy_(statistics[name][buffer])


def check_fits(layers: Mapping[str, _NormBase], statistics: Any, *, place: str) -> None:
    """Refuse statistics that are not of these layers, naming the layer and both shapes."""
    if not isinstance(statistics, Mapping) or set(statistics) != set(layers):
        told = sorted(statistics) if isinstance(statistics, Mapping) else statistics
        raise ModelMismatchError(f"{place} are of layers {told}, the model has {sorted(layers)}")
    for name, layer in layers.items():
        for buffer, tensor in _buffers(layer).items():
            kept = statistics[name]
            found = kept.get(buffer) if isinstance(kept, Mapping) else None
            shape = list(found.shape) if isinstance(found, Tensor) else None
            if shape != list(tensor.shape):
                raise ModelMismatchError(
                    f"{place}: {name}.{buffer} has shape {shape}, the model's {list(tensor.shape)}"
                )


def _buffers(layer: _NormBase) -> Statistics:
    found = {name: getattr(layer, name) for name in BUFFERS}
    return {name: tensor for name, tensor in found.items() if tensor is not None}
