"""How each layer type becomes rows of features. A new type is one registered function.

A layer type says two things: which matrices of weights it has (``Matrix``), and what rows they
multiply in one call. ``register_layer`` adds a type of your own in a few lines. Such a function
is compared with the layer's own output in every pass; torch's own layers need no comparison, as
their functions are tested here against derivatives.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nscl.core.covariance.convolution.unfold import Geometry, Patches
from nscl.core.covariance.observations import InputRows, Observation, TokenIds
from nscl.core.model.block import Layout


@dataclass(frozen=True)
class Matrix:
    """One matrix of a layer's weights, by the layer's own parameter names."""

    weight: str = "weight"
    bias: str | None = "bias"
    label: str = ""
    start: int = 0
    stop: int | None = None  # None: all rows
    bias_start: int = 0
    groups: int = 1
    layout: Layout = "rows"


@dataclass(frozen=True)
class Call:
    """One call of a layer, as its forward hook sees it."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any

    def input(self, name: str = "input") -> Tensor:
        """The layer's (first) input, however it was passed."""
        value: Tensor = self.args[0] if self.args else self.kwargs[name]
        return value


def last_dimension(module: Any, call: Call, gradient: Tensor) -> Iterable[Tensor]:
    """Gradient rows of a layer whose output ends with its output features."""
    yield gradient.reshape(1, -1, gradient.shape[-1])


@dataclass(frozen=True)
class LayerType:
    """The matrices of a layer type, and what one call feeds to each, in the same order."""

    matrices: Callable[[Any], Sequence[Matrix]]
    observe: Callable[[Any, Call], Iterable[Observation]]
    # From the gradient at a call's output to rows [groups, rows, out] for each of the matrices.
    gradients: Callable[[Any, Call, Tensor], Iterable[Tensor]] = last_dimension
    # What a call gives if its observations are right; None: nothing to compare.
    output: Callable[[Any, Call, Sequence[Any]], Tensor] | None = None
    followed: int = 0  # of an output tuple: the item through which the loss depends on the layer


Recogniser = Callable[[nn.Module], LayerType | None]

_TYPES: dict[type[nn.Module], LayerType] = {}
_RECOGNISERS: list[Recogniser] = []
DEFINING_METHODS = ("forward", "_conv_forward")  # these define what a layer computes
_M = TypeVar("_M", bound=Callable[..., Tensor])


def add_layer_type(*types: type[nn.Module], layer_type: LayerType) -> None:
    """Register a full description for module types."""
    for kind in types:
        _TYPES[kind] = layer_type


def add_recogniser(recognise: Recogniser) -> None:
    """Register layer types that are known by how they look, where a class cannot be imported."""
    _RECOGNISERS.append(recognise)


def register_layer(
    kind: type[nn.Module],
    *,
    weight: str = "weight",
    bias: str | None = "bias",
    transposed: bool = False,
    check: bool = True,
) -> Callable[[_M], _M]:
    """Teach nscl a layer type: decorate a function from a call to the rows its weight multiplies.

    The function receives the module and the call's arguments and returns rows ``[..., features]``,
    so that the layer computes ``rows @ weight.flatten(1).T + bias``; with ``transposed`` the weight
    is ``[features, out]``, and it computes ``rows @ weight + bias``. Every pass compares this with
    the layer's own output, once per layer. ``check=False`` is for a layer that computes something
    more after the product: then nothing checks the function.

    >>> class Scaled(nn.Linear):
    ...     def forward(self, input):
    ...         return super().forward(2 * input)
    >>> @register_layer(Scaled)
    ... def scaled_rows(module, input):
    ...     return 2 * input
    """
    if not issubclass(kind, nn.Module):
        raise TypeError(f"register_layer needs a subclass of torch.nn.Module, not {kind!r}")

    def register(rows: _M) -> _M:
        def observe(module: nn.Module, call: Call) -> Iterable[Observation]:
            values = rows(module, *call.args, **call.kwargs)
            yield InputRows.of(values)

        matrix = Matrix(weight=weight, bias=bias, layout="columns" if transposed else "rows")
        output = partial(product, matrix) if check else None
        add_layer_type(kind, layer_type=LayerType(lambda _: (matrix,), observe, output=output))
        return rows

    return register


def product(matrix: Matrix, module: nn.Module, call: Call, seen: Sequence[InputRows]) -> Tensor:
    """``rows @ weight.T + bias`` of a layer with one matrix."""
    weight = module.get_parameter(matrix.weight)
    flat = weight.mT if matrix.layout == "columns" else weight.flatten(1)
    bias = None if matrix.bias is None else getattr(module, matrix.bias, None)
    return F.linear(seen[0].values, flat, bias)


def layer_type_of(module: nn.Module) -> LayerType | None:
    """Find the description for a module, or None.

    A subclass counts as its parent only while it computes the same thing: a subclass with a
    ``forward`` of its own may use its weight differently and must be registered itself.
    """
    for parent in type(module).__mro__:
        if parent in _TYPES:
            if _computes_as(type(module), parent):
                return _TYPES[parent]
            break
    return next((found for known in _RECOGNISERS if (found := known(module))), None)


def _computes_as(kind: type[nn.Module], parent: type[nn.Module]) -> bool:
    return all(getattr(kind, n, None) is getattr(parent, n, None) for n in DEFINING_METHODS)


def _linear(module: nn.Linear, call: Call) -> Iterable[Observation]:
    yield InputRows.of(call.input())


def _embedding(module: nn.Embedding, call: Call) -> Iterable[Observation]:
    yield TokenIds(call.input())


def _conv(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, call: Call) -> Iterable[Observation]:
    dims = len(module.kernel_size)
    images = _batched(call.input(), dims)
    around = _padding(module)
    if module.padding_mode != "zeros":
        images = F.pad(images, [p for pair in reversed(around) for p in pair], module.padding_mode)
        around = ((0, 0),) * dims
    geometry = Geometry(module.kernel_size, module.stride, module.dilation, around, module.groups)
    yield Patches(images, geometry)


def _padding(module: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> tuple[tuple[int, int], ...]:
    if isinstance(module.padding, str):
        if module.padding == "valid":
            return ((0, 0),) * len(module.kernel_size)
        # 'same': an odd total leaves its extra zero at the end, as torch does.
        totals = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    return tuple((p, p) for p in module.padding)


def _conv_transpose(module: nn.ConvTranspose2d, call: Call) -> Iterable[Observation]:
    """A convolution of the input spread out with zeros, padded to the size of the output."""
    dims = len(module.kernel_size)
    images = _batched(call.input(), dims)
    output = _batched(call.output, dims)
    spread = tuple((n - 1) * s + 1 for n, s in zip(images.shape[2:], module.stride, strict=True))
    canvas = images.new_zeros(*images.shape[:2], *spread)
    steps = (slice(None), slice(None), *(slice(None, None, s) for s in module.stride))
    canvas[steps] = images
    around = []
    for dim in range(dims):
        reach = module.dilation[dim] * (module.kernel_size[dim] - 1)
        before = reach - int(module.padding[dim])
        around.append((before, output.shape[2 + dim] + reach - spread[dim] - before))
    if any(p < 0 for pair in around for p in pair):  # padding beyond the kernel cuts pixels off
        canvas = F.pad(canvas, [min(0, p) for pair in reversed(around) for p in pair])
        around = [(max(0, before), max(0, after)) for before, after in around]
    ones = (1,) * dims
    geometry = Geometry(module.kernel_size, ones, module.dilation, tuple(around), module.groups)
    yield Patches(canvas, geometry)


def _channels(module: nn.Conv2d, call: Call, gradient: Tensor) -> Iterable[Tensor]:
    """Gradient rows of an image: every position is one, channels are its features."""
    rows = _batched(gradient, len(module.kernel_size)).movedim(1, -1)
    yield rows.reshape(-1, module.groups, rows.shape[-1] // module.groups).transpose(0, 1)


def _batched(images: Tensor, dims: int) -> Tensor:
    """Convolutions also take a single image without a batch dimension."""
    return images if images.ndim == dims + 2 else images[None]


def _grouped(layout: Layout) -> Callable[[Any], Sequence[Matrix]]:
    return lambda module: (Matrix(groups=module.groups, layout=layout),)


add_layer_type(nn.Linear, layer_type=LayerType(lambda _: (Matrix(),), _linear))
add_layer_type(
    nn.Conv1d, nn.Conv2d, nn.Conv3d, layer_type=LayerType(_grouped("rows"), _conv, _channels)
)
add_layer_type(
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
    layer_type=LayerType(_grouped("transposed"), _conv_transpose, _channels),
)
add_layer_type(
    nn.Embedding,
    layer_type=LayerType(lambda _: (Matrix(bias=None, layout="tokens"),), _embedding),
)


def running_statistics(module: nn.Module) -> dict[str, Tensor]:
    """Running mean and variance of a normalisation layer, if it keeps them."""
    found = {name: getattr(module, name, None) for name in ("running_mean", "running_var")}
    return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}
