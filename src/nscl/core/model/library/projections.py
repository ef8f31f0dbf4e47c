"""Linear layers of transformers: ``Conv1D``, linears of its own, the routers before experts.

State space models hand the weights of two children to functions. What is multiplied there cannot be
seen, so these weights are held number by number.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from nscl.core.capture.patched_forward import own_output, unpatched
from nscl.core.covariance.observations import InputRows, Observation
from nscl.core.model.layer_types import Call, LayerType, Matrix, add_recogniser, product

LIBRARY = "transformers."
_CONV1D = ("transformers.pytorch_utils", "Conv1D")


def weights_given_away(module: nn.Module) -> Iterator[nn.Module]:
    """Children whose weights a module hands to functions itself, instead of calling them.

    Mamba and its relatives do that with a causal convolution, and with the layer of time steps.
    """
    if _kind(module).__module__.startswith(LIBRARY):
        conv = module._modules.get("conv1d")
        if isinstance(conv, nn.Conv1d) and conv.groups == conv.in_channels:
            yield conv
            if isinstance(steps := module._modules.get("dt_proj"), nn.Linear):
                yield steps


def _recognise(module: nn.Module) -> LayerType | None:
    kind = _kind(module)
    if (kind.__module__, kind.__name__) == _CONV1D:
        return _COLUMNS
    if not kind.__module__.startswith(LIBRARY):
        return None
    if isinstance(module, nn.Linear):  # with a forward of its own, or it would be known
        return _LINEAR
    weight = module._parameters.get("weight")
    is_router = kind.__name__.endswith("Router") and weight is not None and weight.ndim == 2
    return _ROUTER if is_router else None


def _kind(module: nn.Module) -> type:
    """The class of a module; FSDP2 puts one of its own before it."""
    kinds = type(module).__mro__
    return next(kind for kind in kinds if not kind.__module__.startswith("torch.distributed."))


def _last_dimension(module: nn.Module, call: Call) -> Iterable[Observation]:
    values = call.args[0] if call.args else next(iter(call.kwargs.values()))
    yield InputRows.of(values)


def _router_gradients(module: Any, call: Call, gradient: Tensor) -> Iterable[Tensor]:
    """From the gradient at the experts' shares to that at the logits, by the router's own code.

    With an identity as its weight a router takes its input for the logits.
    """
    logits = call.output[0].detach().requires_grad_()
    probe = unpatched(module)
    identity = torch.eye(logits.shape[-1], dtype=logits.dtype, device=logits.device)
    probe._parameters = {**module._parameters, "weight": nn.Parameter(identity, False)}
    probe.hidden_dim = logits.shape[-1]
    with torch.enable_grad():
        shares = own_output(probe, Call((logits, *call.args[1:]), _others(call), None))[1]
    (found,) = torch.autograd.grad(shares, logits, gradient)
    yield found.reshape(1, -1, found.shape[-1])


def _others(call: Call) -> dict[str, Any]:
    """Keyword arguments without the input, which comes first."""
    return dict(list(call.kwargs.items())[0 if call.args else 1 :])


def _one_matrix(matrix: Matrix) -> LayerType:
    return LayerType(lambda _: (matrix,), _last_dimension, output=partial(product, matrix))


_COLUMNS = _one_matrix(Matrix(layout="columns"))
_LINEAR = _one_matrix(Matrix())
_ROUTER = replace(_LINEAR, gradients=_router_gradients, followed=1)
add_recogniser(_recognise)
