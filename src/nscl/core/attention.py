"""``MultiheadAttention``: four matrices, three inputs, and an output projection that is no call.

The module never calls ``out_proj``; it hands its weight to a function. Its input, the attended
values, is read off a shallow copy of the module whose output projection is the identity: the same
code with the same masks, so nothing about attention is written a second time here.
"""

import inspect
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from nscl.core.layers import Call, LayerType, Matrix, add_layer_type
from nscl.core.patched import own_output, unpatched
from nscl.core.running import Observation, Rows


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
        yield _rows(bound.arguments[name])
    yield _rows(_attended(module, call))


def _rows(values: Tensor) -> Rows:
    return Rows(values.reshape(1, -1, values.shape[-1]))


def _attended(module: nn.MultiheadAttention, call: Call) -> Tensor:
    probe = unpatched(module)
    size, weight = module.embed_dim, module.out_proj.weight
    identity = nn.Linear(size, size, bias=False, device="meta", dtype=weight.dtype)
    identity.weight = nn.Parameter(torch.eye(size, dtype=weight.dtype, device=weight.device))
    probe.out_proj = identity
    attended: Tensor = own_output(probe, call)[0]
    return attended


add_layer_type(nn.MultiheadAttention, layer_type=LayerType(_matrices, _observe))
