"""How much each parameter matters: gradients of single samples, squared or absolute, averaged.

The gradient of a score of one sample's logits ``f`` is ``Jᵀv``, with J their Jacobian and v the
gradient of the score by ``f``, which is known in closed form. So one vectorised product serves all
importances (docs/methods.md, "EWC" and "MAS"):

=============  =====================  ==========================================
score          v                      importance
=============  =====================  ==========================================
``log p(y)``   ``onehot(y) − p``      mean of squares: the diagonal Fisher (EWC)
``‖f‖²``       ``2 f``                mean of absolute values (MAS, MUC-MAS)
=============  =====================  ==========================================

Magnitudes are taken of ONE sample's gradient, before any mean: gradients 1 and 3 have the mean
square 5; the square of their mean is 4, and the rule ``B·mean²`` of several code bases gives 8.
Both surrogates are there, by name. The network is in eval mode meanwhile and its modes come back;
buffers are never written.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from nscl.core.capture.forward_hooks import evaluating
from nscl.core.distributed.collectives import is_distributed, sum_over_ranks
from nscl.data.inputs import Inputs, apply, count, split
from nscl.errors import FeatureError, UnsupportedError
from nscl.methods.rank_rng import whole_batch

Unit = Literal["sample", "batch", "batch_scaled"]
Magnitude = Literal["square", "absolute"]
Tensors = dict[str, Tensor]
Output = Callable[[Tensors, Any], Tensor]  # parameters by name, inputs → logits [N, classes]
Directions = Callable[[Tensor, Tensor], Iterable[Tensor]]  # logits, labels → some v [N, classes]

# Bytes of per-sample gradients held at a time: a processor is fastest while its caches hold much of
# them, an accelerator wants work.
CHUNK_BYTES = {"cpu": 2**25}
_CHUNK_BYTES_ELSEWHERE = 2**28


def through(model: nn.Module, task: int) -> Output:
    """The logits of one task's head, as a function of the network's parameters by name."""

    def output(parameters: Tensors, inputs: Inputs) -> Tensor:
        logits: Tensor = functional_call(model, parameters, (inputs, task))
        return logits

    return output


def importances(
    model: nn.Module,
    batches: Iterable[tuple[Inputs, Tensor]],
    *,
    output: Output,
    parameters: Mapping[str, Tensor],
    directions: Directions,
    magnitude: Magnitude,
    unit: Unit = "sample",
) -> Tensors:
    """Mean magnitude of the gradients ``Jᵀv``, for every v that ``directions`` yields, summed.

    ``output`` says how ``parameters`` become logits; ``model`` is what it runs. ``unit`` says of
    what a magnitude is taken: of one ``sample``'s gradient; of a ``batch``'s mean gradient; or
    that times the batch's size, as a mean over batches (``batch_scaled``). In a torch.distributed
    group every rank brings its part of each batch, as the laboratory's loaders deal rows out.
    """
    gradients = _Gradients(model, output, parameters)
    totals, samples, count = _zeros(parameters), 0, 0
    _refuse_batch_statistics(model, unit)
    with torch.no_grad(), evaluating(model):
        for inputs, labels in batches:
            size, _ = whole_batch(len(labels))
            samples, count = samples + size, count + 1
            # Directions may be drawn by all ranks together, also by one that has no rows here.
            for v in directions(output(gradients.parameters, inputs), labels) if size else ():
                if unit == "sample":
                    gradients.add_samples(totals, inputs, v, magnitude)
                else:
                    gradients.add_batch(totals, inputs, v, magnitude, size)
    if unit == "sample":
        totals = _sum_tensors(totals)
    return _means(totals, count if unit == "batch_scaled" else samples)


class _Gradients:
    """Gradients ``Jᵀv`` of one network by some of its parameters, added up by magnitude."""

    def __init__(self, model: nn.Module, output: Output, parameters: Mapping[str, Tensor]) -> None:
        self.model, self.output = model, output
        # Vectorised, layers in the channels_last format fall back to one sample at a time.
        self.parameters = {name: p.detach().contiguous() for name, p in parameters.items()}
        held = sum(p.nbytes for p in parameters.values())
        device = next((p.device.type for p in parameters.values()), "cpu")
        self.chunk = max(1, CHUNK_BYTES.get(device, _CHUNK_BYTES_ELSEWHERE) // max(1, held))

    def _score(self, parameters: Tensors, inputs: Inputs, v: Tensor) -> Tensor:
        return (self.output(parameters, inputs) * v).sum()

    def _sample_score(self, parameters: Tensors, sample: Inputs, v: Tensor) -> Tensor:
        return self._score(parameters, apply(lambda tensor: tensor[None], sample), v[None])

    def add_samples(self, totals: Tensors, inputs: Inputs, v: Tensor, magnitude: str) -> None:
        """Add the magnitudes of every sample's gradient, a chunk of samples at a time."""
        if count(inputs) == 0:
            return
        stored = apply(lambda tensor: tensor.contiguous(), inputs)
        each = vmap(grad(self._sample_score), in_dims=(None, 0, 0))
        for x, w in zip(split(stored, self.chunk), v.split(self.chunk), strict=True):
            for name, value in self._vectorised(each, x, w).items():
                size = value.square() if magnitude == "square" else value.abs()
                totals[name] += size.sum(0, dtype=totals[name].dtype)

    def _vectorised(self, each: Callable[..., Any], x: Inputs, w: Tensor) -> Tensors:
        try:
            found: Tensors = each(self.parameters, x, w)
        except RuntimeError as problem:
            raise UnsupportedError(
                f"gradients of single samples cannot be taken of this {type(self.model).__name__}: "
                f"{str(problem).splitlines()[0]}; take them of whole batches "
                "(--method.unit batch_scaled)"
            ) from problem
        return found

    def add_batch(
        self, totals: Tensors, inputs: Inputs, v: Tensor, magnitude: str, size: int
    ) -> None:
        """Add the magnitude of the batch's mean gradient, weighted by the batch's size."""
        summed = _sum_tensors(grad(self._score)(self.parameters, inputs, v))
        for name, value in summed.items():
            mean = value / size
            totals[name] += size * (mean.square() if magnitude == "square" else mean.abs())


def _zeros(parameters: Mapping[str, Tensor]) -> Tensors:
    """Laid out in memory as the parameters are, so that penalties work on like tensors."""
    return {
        name: torch.zeros_like(p.detach(), dtype=torch.promote_types(p.dtype, torch.float32))
        for name, p in parameters.items()
    }


def _means(totals: Tensors, count: int) -> Tensors:
    if count == 0:
        raise FeatureError("importances need samples: the task's loader yielded none")
    for name, total in totals.items():
        if not torch.isfinite(total).all():
            raise FeatureError(
                f"the importance of '{name}' is not finite: the network's outputs have diverged; "
                "lower the learning rate or the method's strength"
            )
    return {name: total / count for name, total in totals.items()}


def _sum_tensors(tensors: Tensors) -> Tensors:
    if not is_distributed():
        return tensors
    return {name: sum_over_ranks(t).to(t.device) for name, t in tensors.items()}


def _refuse_batch_statistics(model: nn.Module, unit: Unit) -> None:
    for name, layer in model.named_modules():
        if unit == "sample" and isinstance(layer, _BatchNorm) and layer.running_mean is None:
            raise UnsupportedError(
                f"'{name}' normalises with the batch's own statistics, so single samples have no "
                "gradients of their own: track running statistics, or use --method.unit batch"
            )
