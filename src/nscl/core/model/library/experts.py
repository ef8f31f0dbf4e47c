"""Mixtures of experts in transformers: all experts of a layer in two parameters ``[experts, …]``.

One matrix per expert, fed with the tokens that were routed to it. What the second parameter is fed
lies inside the layer and is computed again here. The rows of an expert are weighed by its share in
the token's output, so that what the second parameter makes of them is part of the output itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nscl.core.covariance.observations import InputRows, Observation
from nscl.core.model.layer_types import Call, LayerType, Matrix, add_recogniser

_GIVEN = ("hidden_states", "top_k_index", "top_k_weights")


def _recognise(module: Any) -> LayerType | None:
    """Experts as ``transformers.integrations.moe`` describes them: without bias, not transposed."""
    plain = {"is_transposed": False, "has_bias": False, "has_post_expert_norm": False}
    shapes = [getattr(module._parameters.get(name), "ndim", 0) for name in _names(module)]
    is_known = all(getattr(module, name, None) is value for name, value in plain.items())
    return _EXPERTS if is_known and shapes == [3, 3] else None


def _names(module: Any) -> tuple[str, str]:
    return ("gate_up_proj" if getattr(module, "has_gate", True) else "up_proj"), "down_proj"


def _matrices(module: nn.Module) -> Sequence[Matrix]:
    up, down = _names(module)
    return tuple(
        Matrix(weight=name, bias=None, label=name, layout="stacked") for name in (up, down)
    )


@dataclass(frozen=True)
class _Routed:
    """The tokens of a call, sorted by expert: ``[experts, most, ...]`` with zeros where less."""

    rows: Tensor
    shares: Tensor
    expert: Tensor  # of each pair of a token and an expert, sorted
    place: Tensor  # of the pair among those of its expert
    token: Tensor
    tokens: int

    def observed(self, values: Tensor) -> InputRows:
        """Rows of all experts, with the token that each of them belongs to."""
        sources = torch.full(values.shape[:2], -1, device=self.token.device)
        sources[self.expert, self.place] = self.token
        return InputRows(values, (self.tokens,), sources, self.tokens)

    def spread(self, values: Tensor) -> Tensor:
        """A value per token, to all experts that the token was routed to."""
        spread = values.new_zeros(*self.rows.shape[:2], *values.shape[1:])
        spread[self.expert, self.place] = values[self.token]
        return spread


def _route(module: Any, call: Call) -> _Routed:
    hidden, index, weights = (*call.args, *(call.kwargs[n] for n in _GIVEN[len(call.args) :]))
    count = len(module.get_parameter(_names(module)[0]))
    expert, order = torch.sort(index.reshape(-1), stable=True)
    # Where experts are spread over machines, numbers beyond the last one stand for "elsewhere".
    expert, order = expert[expert < count], order[: int((expert < count).sum())]
    sizes = torch.bincount(expert, minlength=count)
    place = torch.arange(len(expert), device=expert.device) - (sizes.cumsum(0) - sizes)[expert]
    token = order // index.shape[-1]
    most = int(sizes.max()) if len(expert) else 0
    rows = hidden.new_zeros(count, most, hidden.shape[-1])
    shares = weights.new_zeros(count, most, 1)
    rows[expert, place] = hidden[token]
    shares[expert, place] = weights.reshape(-1, 1)[order]
    return _Routed(rows, shares, expert, place, token, len(hidden))


def _activated(module: Any, projected: Tensor) -> Tensor:
    activate = module._apply_gate if getattr(module, "has_gate", True) else module.act_fn
    found: Tensor = activate(projected)
    return found


def _observe(module: nn.Module, call: Call) -> Iterable[Observation]:
    routed = _route(module, call)
    yield routed.observed(routed.rows)
    up = module.get_parameter(_names(module)[0])
    inner = _activated(module, routed.rows @ up.mT) * routed.shares
    yield routed.observed(inner.to(routed.rows.dtype))


def _gradients(module: nn.Module, call: Call, gradient: Tensor) -> Iterable[Tensor]:
    """Gradients at the outputs of both parameters' matrices: the first is inside the layer."""
    routed = _route(module, call)
    up, down = (module.get_parameter(name).detach() for name in _names(module))
    outside = routed.spread(gradient)
    projected = (routed.rows.detach() @ up.mT).requires_grad_()
    with torch.enable_grad():
        inner = _activated(module, projected) * routed.shares.detach()
    yield torch.autograd.grad(inner, projected, (outside @ down).to(inner.dtype))[0]
    yield outside


def _output(module: nn.Module, call: Call, seen: Sequence[Any]) -> Tensor:
    routed = _route(module, call)
    parts = (seen[1].values @ module.get_parameter("down_proj").mT)[routed.expert, routed.place]
    output: Tensor = parts.new_zeros(routed.tokens, parts.shape[-1])
    return output.index_add_(0, routed.token, parts)


_EXPERTS = LayerType(_matrices, _observe, _gradients, output=_output)
add_recogniser(_recognise)
