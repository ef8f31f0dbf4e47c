"""Parameters that are held number by number: those of norm layers, and plain ones.

A scale or a shift multiplies or adds per channel, so it has no useful null space. The same is true
of class tokens, tables of positions and everything else that is no layer's weight. Which parameters
these are is decided by how a module looks; only what looks like a matrix needs a registered layer
type. The option ``norms`` decides about all of them alike. The difference between a norm and a
plain parameter is its line in a report, and that a norm must be called as a module.
"""

from collections.abc import Iterable
from typing import TypeVar

from torch import Tensor, nn
from torch.nn.utils import parametrize

NORM_TYPES: tuple[type[nn.Module], ...] = (
    nn.modules.batchnorm._NormBase,  # BatchNorm, SyncBatchNorm and InstanceNorm
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)
_OWN_NORMS: list[type[nn.Module]] = []
_N = TypeVar("_N", bound=type[nn.Module])


def register_norm(kind: _N) -> _N:
    """Teach nscl a normalisation layer: the option ``norms`` then decides about its parameters.

    Needed for few of them. torch's own are known, and so is every module without children whose
    parameters are vectors and whose class has "norm" in its name (``LlamaRMSNorm``).

    >>> @register_norm
    ... class Standardize(nn.Module):
    ...     def __init__(self, width):
    ...         super().__init__()
    ...         self.gain = nn.Parameter(torch.ones(2, width))
    ...
    ...     def forward(self, x):
    ...         x = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)
    ...         return x * self.gain[0] + x.abs() * self.gain[1]
    >>> is_norm(Standardize(4))
    True
    """
    if not issubclass(kind, nn.Module):
        raise TypeError(f"register_norm needs a subclass of torch.nn.Module, not {kind!r}")
    _OWN_NORMS.append(kind)
    return kind


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a normalisation layer: by its class, or by how it looks.

    >>> class ScaleNorm(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.scale = nn.Parameter(torch.ones(()))
    >>> is_norm(ScaleNorm()), is_norm(nn.PReLU())
    (True, False)
    """
    if isinstance(module, (*NORM_TYPES, *_OWN_NORMS)):
        return True
    own = list(module.parameters(recurse=False))
    is_leaf = next(module.children(), None) is None
    named = "norm" in type(module).__name__.lower()
    return is_leaf and named and bool(own) and all(map(is_vector, own))


def is_vector(parameter: Tensor) -> bool:
    """Whether a parameter has at most one dimension that counts: a scale, a shift, a token."""
    return sum(size > 1 for size in parameter.shape) <= 1


# A parameter of several dimensions is no matrix of a layer if a word of its name begins like this.
_PLAIN_WORDS = ("token", "pos", "bias", "scale", "table", "embed")


def is_plain(module: nn.Module, parameters: Iterable[tuple[str, Tensor]]) -> bool:
    """Whether these parameters of a module are plain ones, and not the weights of a layer.

    A class token or a table of positions stands beside the layers that use it. A module without
    children is a layer itself, unless its parameters are vectors or named like plain ones.

    >>> is_plain(nn.PReLU(3), nn.PReLU(3).named_parameters())
    True
    >>> is_plain(nn.LSTM(2, 2), nn.LSTM(2, 2).named_parameters())
    False
    """
    if next(module.children(), None) is not None:
        return True
    if isinstance(module, parametrize.ParametrizationList):
        return True
    return all(is_vector(p) or _is_named_plain(name) for name, p in parameters)


def _is_named_plain(name: str) -> bool:
    return any(word.startswith(_PLAIN_WORDS) for word in name.lower().split("_"))
