"""Embeddings with a ``forward`` of their own: scaled, shifted, or read without an index.

Gemma scales what it looks up, OPT shifts its positions, Whisper takes a slice of the table. Which
rows a call takes and by what factor is read off the layer itself: it looks up the same things in a
table of ones and in a table of row numbers.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nscl.core.capture.patched_forward import own_output, unpatched
from nscl.core.covariance.observations import Observation, TokenIds
from nscl.core.model.layer_types import Call, LayerType, Matrix, add_recogniser


def _recognise(module: nn.Module) -> LayerType | None:
    if isinstance(module, nn.Embedding) and type(module).forward is not nn.Embedding.forward:
        return _LOOKUP
    return None


def _observe(module: nn.Embedding, call: Call) -> Iterable[Observation]:
    # Apple's GPUs have no float64; row numbers up to 2²⁴ are exact in float32 too.
    dtype = torch.float32 if module.weight.device.type == "mps" else torch.float64
    ones = torch.ones(module.num_embeddings, 1, device=module.weight.device)
    factor = _looked_up(module, call, ones.to(dtype))
    numbers = _looked_up(module, call, ones.to(dtype).cumsum(0)) / factor
    ids = (numbers.nan_to_num() - 1).round().long().clamp(0, module.num_embeddings - 1)
    yield TokenIds(ids, _looked_up(module, call, ones.to(module.weight.dtype)))


def _looked_up(module: nn.Embedding, call: Call, table: Tensor) -> Tensor:
    """What a call finds in a table of one column."""
    probe = unpatched(module)
    probe._parameters = {**module._parameters, "weight": nn.Parameter(table, False)}
    probe.embedding_dim = 1
    found: Tensor = own_output(probe, call)
    return found[..., 0]


def _output(module: nn.Embedding, call: Call, seen: Sequence[Any]) -> Tensor:
    (found,) = seen
    output: Tensor = module.weight[found.ids] * found.factor[..., None]
    return output


_LOOKUP = LayerType(lambda _: (Matrix(bias=None, layout="tokens"),), _observe, output=_output)
add_recogniser(_recognise)
