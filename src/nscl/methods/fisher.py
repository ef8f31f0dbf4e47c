"""How much each parameter matters: gradients of single samples, squared or absolute, averaged.

The gradient of a score of one sample's logits ``f`` is ``Jᵀv``, with J their Jacobian and v the
gradient of the score by ``f``, which is known in closed form. So one vectorised product serves
all importances (METHODS §5, §6):

=============  =====================  ==========================================
score          v                      importance
=============  =====================  ==========================================
``log p(y)``   ``onehot(y) − p``      mean of squares: the diagonal Fisher (EWC)
``‖f‖²``       ``2 f``                mean of absolute values (MAS)
=============  =====================  ==========================================

Magnitudes are taken of ONE sample's gradient, before any mean: gradients 1 and 3 have the mean
square 5; the square of their mean is 4, and the rule ``B·mean²`` of several code bases gives 8.
Both surrogates are there, by name. The network is in eval mode meanwhile and its modes come back;
buffers are never written.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from nscl.core.observer import evaluating
from nscl.core.shards import is_distributed, sum_over_ranks
from nscl.data.batches import Batches
from nscl.data.tasks import Split
from nscl.errors import FeatureError, UnsupportedError
from nscl.methods.base import Lab, Options

Estimator = Literal["true", "sketched", "sampled", "argmax", "empirical"]
Unit = Literal["sample", "batch", "batch_scaled"]
Magnitude = Literal["square", "absolute"]
Tensors = dict[str, Tensor]
Directions = Callable[[Tensor, Tensor], Iterable[Tensor]]  # logits, labels → some v [N, classes]

CHUNK_BYTES = 2**28  # of per-sample gradients held at once
_BATCH = 256  # samples per forward pass where the batch size has no meaning


class PassOptions(Options):
    """Which of a finished task's pictures importances are taken from."""

    samples: PositiveInt | None = None  # so many, drawn at random; None: all
    stats_augment: bool = True  # as in training, or the plain pictures


def pass_batches(lab: Lab, split: Split, options: PassOptions, *, unit: Unit = "sample") -> Batches:
    """One pass for importances; batches are those of training only where their size matters."""
    if options.samples is not None and options.samples < len(split):
        split = split.select(torch.randperm(len(split))[: options.samples])
    return lab.loader(
        split,
        purpose="importance",
        augment=None if options.stats_augment else "none",
        batch_size=_BATCH if unit == "sample" else None,
    )


def fisher(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    task: int,
    parameters: Mapping[str, Tensor],
    estimator: Estimator,
    unit: Unit = "sample",
) -> Tensors:
    """Diagonal Fisher information of ``parameters`` (named as in ``model``), by name.

    ``estimator`` says which label y is asked for: every class, weighted by its probability
    (``true``: exact, one backward pass per class); all of them in one pass under random signs
    (``sketched``: unbiased, as in Martens et al., ICML 2012); one drawn by the network
    (``sampled``: unbiased, but a confident network hardly ever draws what matters); its favourite
    (``argmax``); the right one (``empirical``: goes to 0 where the data are fitted).

    >>> from nscl.models import MLP, MultiHead
    >>> model = MultiHead(MLP(4, width=3), [2])
    >>> data = [(torch.randn(8, 1, 2, 2), torch.randint(0, 2, (8,)))]
    >>> shared = dict(model.backbone_parameters())
    >>> found = fisher(model, data, task=0, parameters=shared, estimator="true")
    >>> found["backbone.layers.0.weight"].shape
    torch.Size([3, 4])
    """
    if estimator == "true" and unit != "sample":
        raise UnsupportedError(
            "the estimator 'true' weighs every sample's classes by themselves and has no form for "
            "whole batches: choose another estimator, or take single samples"
        )

    def directions(logits: Tensor, labels: Tensor) -> Iterator[Tensor]:
        return likelihood_directions(logits, labels, estimator)

    return importances(
        model,
        batches,
        task=task,
        parameters=parameters,
        directions=directions,
        magnitude="square",
        unit=unit,
    )


def likelihood_directions(logits: Tensor, labels: Tensor, estimator: Estimator) -> Iterator[Tensor]:
    """Gradients of ``log p(y)`` by the logits; all of them, times ``√p(y)``, for ``true``.

    The mean of ``v vᵀ``, or its sum for ``true``, is ``diag(p) − p pᵀ`` for the first three.
    """
    p = logits.softmax(1)
    if estimator == "true":
        for number, onehot in enumerate(torch.eye(p.shape[1], dtype=p.dtype, device=p.device)):
            yield p[:, number, None].sqrt() * (onehot - p)
        return
    if estimator == "sketched":
        signs = torch.randint(0, 2, p.shape, device=p.device).to(p.dtype) * 2.0 - 1.0
        roots = p.sqrt() * signs
        yield roots - p * roots.sum(1, keepdim=True)
        return
    if estimator == "sampled":
        chosen = torch.multinomial(p, 1)[:, 0]
    else:
        chosen = p.argmax(1) if estimator == "argmax" else labels
    yield F.one_hot(chosen, p.shape[1]).to(p.dtype) - p


def norm_directions(logits: Tensor, labels: Tensor) -> Iterator[Tensor]:
    """Gradient of the squared norm of the logits, by the logits; labels are not looked at."""
    yield 2.0 * logits


def importances(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    task: int,
    parameters: Mapping[str, Tensor],
    directions: Directions,
    magnitude: Magnitude,
    unit: Unit = "sample",
) -> Tensors:
    """Mean magnitude of the gradients ``Jᵀv``, for every v that ``directions`` yields, summed.

    ``unit`` says of what a magnitude is taken: of one ``sample``'s gradient; of a ``batch``'s mean
    gradient; or that times the batch's size, as a mean over batches (``batch_scaled``). In a
    torch.distributed group every rank brings its part of each batch.
    """
    gradients = _Gradients(model, task, {name: p.detach() for name, p in parameters.items()})
    totals, samples, count = _zeros(gradients.parameters), 0, 0
    _refuse_batch_statistics(model, unit)
    with torch.no_grad(), evaluating(model):
        for images, labels in batches:
            size = _sum_count(len(labels)) if unit != "sample" else len(labels)
            samples, count = samples + size, count + 1
            for v in directions(model(images, task), labels) if size else ():
                if unit == "sample":
                    gradients.add_samples(totals, images, v, magnitude)
                else:
                    gradients.add_batch(totals, images, v, magnitude, size)
    if unit == "sample":
        totals, samples = _sum_tensors(totals), _sum_count(samples)
    return _means(totals, count if unit == "batch_scaled" else samples)


class _Gradients:
    """Gradients ``Jᵀv`` of one network by some of its parameters, added up by magnitude."""

    def __init__(self, model: nn.Module, task: int, parameters: Tensors) -> None:
        self.model, self.task, self.parameters = model, task, parameters
        held = sum(p.nbytes for p in parameters.values())
        self.chunk = max(1, CHUNK_BYTES // max(1, held))

    def _score(self, parameters: Tensors, images: Tensor, v: Tensor) -> Tensor:
        logits: Tensor = functional_call(self.model, parameters, (images, self.task))
        return (logits * v).sum()

    def _sample_score(self, parameters: Tensors, image: Tensor, v: Tensor) -> Tensor:
        return self._score(parameters, image[None], v[None])

    def add_samples(self, totals: Tensors, images: Tensor, v: Tensor, magnitude: str) -> None:
        """Add the magnitudes of every sample's gradient, a chunk of samples at a time."""
        each = vmap(grad(self._sample_score), in_dims=(None, 0, 0))
        for x, w in zip(images.split(self.chunk), v.split(self.chunk), strict=True):
            for name, value in self._vectorised(each, x, w).items():
                size = value.square_() if magnitude == "square" else value.abs_()
                totals[name] += size.sum(0, dtype=totals[name].dtype)

    def _vectorised(self, each: Callable[..., Any], x: Tensor, w: Tensor) -> Tensors:
        try:
            found: Tensors = each(self.parameters, x, w)
        except RuntimeError as problem:
            raise UnsupportedError(
                f"gradients of single samples cannot be taken of this {type(self.model).__name__}: "
                f"{str(problem).splitlines()[0]}; take them of whole batches (--method.unit batch)"
            ) from problem
        return found

    def add_batch(
        self, totals: Tensors, images: Tensor, v: Tensor, magnitude: str, size: int
    ) -> None:
        """Add the magnitude of the batch's mean gradient, weighted by the batch's size."""
        summed = _sum_tensors(grad(self._score)(self.parameters, images, v))
        for name, value in summed.items():
            mean = value / size
            totals[name] += size * (mean.square() if magnitude == "square" else mean.abs())


def _zeros(parameters: Tensors) -> Tensors:
    return {
        name: torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32))
        for name, p in parameters.items()
    }


def _means(totals: Tensors, count: int) -> Tensors:
    if count == 0:
        raise FeatureError("importances need pictures: the task's loader yielded none")
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


def _sum_count(count: int) -> int:
    return int(sum_over_ranks(torch.tensor([float(count)], dtype=torch.float64)).item())


def _refuse_batch_statistics(model: nn.Module, unit: Unit) -> None:
    for name, layer in model.named_modules():
        if unit == "sample" and isinstance(layer, _BatchNorm) and layer.running_mean is None:
            raise UnsupportedError(
                f"'{name}' normalises with the batch's own statistics, so single samples have no "
                "gradients of their own: track running statistics, or use --method.unit batch"
            )
