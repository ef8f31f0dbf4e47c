"""``MultiheadAttention``: four matrices, three inputs, and an output projection without a call.

The module never calls ``out_proj``; it hands its weight to a function. Its input, the attended
values, is read off a shallow copy of the module whose output projection is the identity: the same
code with the same masks, so nothing about attention is written a second time here.
"""

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nscl.core.capture.patched_forward import own_output, unpatched
from nscl.core.covariance.observations import InputRows, Observation
from nscl.core.model.layer_types import Call, LayerType, Matrix, add_layer_type


def _matrices(module: nn.MultiheadAttention) -> Sequence[Matrix]:
    size = module.embed_dim
    separate = module.in_proj_weight is None
    inputs = [
        Matrix(
            weight=f"{letter}_proj_weight" if separate else "in_proj_weight",
            bias="in_proj_bias",
            label=label,
            start=0 if separate else i * size,
            stop=size if separate else (i + 1) * size,
            bias_start=i * size,
        )
        for i, (letter, label) in enumerate(zip("qkv", ("query", "key", "value"), strict=True))
    ]
    return (*inputs, Matrix(weight="out_proj.weight", bias="out_proj.bias", label="output"))


def _observe(module: nn.MultiheadAttention, call: Call) -> Iterable[Observation]:
    bound = inspect.signature(nn.MultiheadAttention.forward).bind(module, *call.args, **call.kwargs)
    for name in ("query", "key", "value"):
        yield InputRows.of(bound.arguments[name])
    yield InputRows.of(_attended(module, call))


def _attended(module: nn.MultiheadAttention, call: Call) -> Tensor:
    probe = unpatched(module)
    size, weight = module.embed_dim, module.out_proj.weight
    identity = nn.Linear(size, size, bias=False, device="meta", dtype=weight.dtype)
    identity.weight = nn.Parameter(torch.eye(size, dtype=weight.dtype, device=weight.device))
    probe.out_proj = identity
    attended: Tensor = own_output(probe, call)[0]
    return attended


def _gradients(module: nn.MultiheadAttention, call: Call, gradient: Tensor) -> Iterable[Tensor]:
    """Gradients at the four projections' outputs: the first three are inside the module.

    They are found by running the rest of the module once more, on projected inputs and with
    identities in the place of its input projections.
    """
    bound = inspect.signature(nn.MultiheadAttention.forward).bind(module, *call.args, **call.kwargs)
    inputs = [bound.arguments[name] for name in ("query", "key", "value")]
    weights, biases = _input_projections(module)
    projected = [
        F.linear(x.detach(), w.detach(), b).requires_grad_()
        for x, w, b in zip(inputs, weights, biases, strict=True)
    ]
    probe = _after_projection(module)
    given = ("self", "query", "key", "value")
    others = {name: value for name, value in bound.arguments.items() if name not in given}
    with torch.enable_grad():
        output = own_output(probe, Call(tuple(projected), others, None))[0]
    for found in torch.autograd.grad(output, projected, gradient):
        yield found.reshape(1, -1, found.shape[-1])
    yield gradient.reshape(1, -1, gradient.shape[-1])


def _input_projections(
    module: nn.MultiheadAttention,
) -> tuple[Sequence[Tensor], Sequence[Tensor | None]]:
    separate = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    packed: Tensor | None = module.in_proj_weight
    bias: Tensor | None = module.in_proj_bias
    weights = separate if packed is None else packed.chunk(3)
    return weights, (None, None, None) if bias is None else bias.detach().chunk(3)


def _after_projection(module: nn.MultiheadAttention) -> Any:
    """A copy of the module whose query, key and value projections are identities."""
    probe, size, like = unpatched(module), module.embed_dim, module.out_proj.weight
    identity = nn.Parameter(torch.eye(size, dtype=like.dtype, device=like.device), False)
    probe._parameters = {
        **module._parameters,
        "in_proj_weight": None,
        "in_proj_bias": None,
        **dict.fromkeys(("q_proj_weight", "k_proj_weight", "v_proj_weight"), identity),
    }
    probe.kdim = probe.vdim = size
    probe._qkv_same_embed_dim = False
    return probe


add_layer_type(nn.MultiheadAttention, layer_type=LayerType(_matrices, _observe, _gradients))
