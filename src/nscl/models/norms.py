"""Which layers are normalisation layers, and their parameters and running statistics by name."""

from collections.abc import Iterator

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

#: BatchNorm and InstanceNorm of every dimension and SyncBatchNorm share torch's ``_NormBase``.
NORM_TYPES: tuple[type[nn.Module], ...] = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


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
